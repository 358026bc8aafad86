//! What a subscription lets through.
//!
//! Two steps: the tag hash of the ConsumeQueue unit rules most messages out without reading them, then the record itself
//! is asked, since two tags may share a hash.

use thiserror::Error;

/// Longest filter expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// Most tags of one expression.
pub const EXPRESSION_TAGS_MAX: usize = 128;

/// Why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// Longer than [`EXPRESSION_BYTES_MAX`].
    #[error("The filter expression has {0} bytes, which is more than {EXPRESSION_BYTES_MAX}.")]
    TooLong(usize),
    /// More tags than [`EXPRESSION_TAGS_MAX`].
    #[error("The filter expression has {0} tags, which is more than {EXPRESSION_TAGS_MAX}.")]
    TooManyTags(usize),
    /// Nothing but separators and blanks.
    #[error("The filter expression {0:?} names no tag.")]
    NoTag(String),
    /// A tag that no message can have.
    #[error("The filter expression {0:?} holds a tag that no message can have.")]
    Tag(String),
}

/// A subscription's filter. Kinds are added as they are supported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filter {
    /// By tag.
    Tag(TagFilter),
}

impl Filter {
    /// Lets everything through.
    #[must_use]
    pub fn all() -> Filter {
        Filter::Tag(TagFilter::all())
    }

    /// By tags; see [`TagFilter::parse`].
    ///
    /// # Errors
    /// See [`FilterError`].
    pub fn parse_tags(expression: &str) -> Result<Filter, FilterError> {
        TagFilter::parse(expression).map(Filter::Tag)
    }

    /// Whether a message whose ConsumeQueue unit has this tag hash may match.
    #[must_use]
    pub fn matches_code(&self, tags_code: i64) -> bool {
        match self {
            Filter::Tag(tags) => tags.matches_code(tags_code),
        }
    }
}

/// Alternatives of one tag each, or everything.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TagFilter {
    /// Sorted, without repetition; empty: everything.
    tags: Vec<String>,
    /// Hashes of `tags`, sorted.
    codes: Vec<i64>,
}

impl TagFilter {
    /// Lets everything through.
    #[must_use]
    pub fn all() -> TagFilter {
        TagFilter::default()
    }

    /// `*` or an empty expression is everything; else tags separated by `||`.
    ///
    /// # Errors
    /// See [`FilterError`].
    pub fn parse(expression: &str) -> Result<TagFilter, FilterError> {
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(FilterError::TooLong(expression.len()));
        }
        let whole = expression.trim();
        if whole.is_empty() || whole == "*" {
            return Ok(TagFilter::all());
        }
        let tags: Vec<&str> = whole.split("||").map(str::trim).filter(|tag| !tag.is_empty()).collect();
        if tags.is_empty() {
            return Err(FilterError::NoTag(expression.to_owned()));
        }
        if tags.iter().any(|tag| tag.contains('|') || tag.chars().any(char::is_control)) {
            return Err(FilterError::Tag(expression.to_owned()));
        }
        if tags.contains(&"*") {
            return Ok(TagFilter::all());
        }
        TagFilter::from_tags(tags.into_iter().map(str::to_owned))
    }

    /// A filter of these tags as they are; none: everything.
    ///
    /// # Errors
    /// [`FilterError::TooManyTags`].
    pub fn from_tags(tags: impl IntoIterator<Item = String>) -> Result<TagFilter, FilterError> {
        let mut tags: Vec<String> = tags.into_iter().collect();
        if tags.len() > EXPRESSION_TAGS_MAX {
            return Err(FilterError::TooManyTags(tags.len()));
        }
        tags.sort_unstable();
        tags.dedup();
        let mut codes: Vec<i64> = tags.iter().map(|tag| tags_code(tag)).collect();
        codes.sort_unstable();
        Ok(TagFilter { tags, codes })
    }

    /// The tags, sorted; empty: everything.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Whether everything is let through.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.tags.is_empty()
    }

    /// Whether a message with this tag hash may match; `true` may be a collision.
    #[must_use]
    pub fn matches_code(&self, tags_code: i64) -> bool {
        self.is_all() || self.codes.binary_search(&tags_code).is_ok()
    }

    /// Whether a message with this tag matches.
    #[must_use]
    pub fn matches_tag(&self, tag: Option<&str>) -> bool {
        self.is_all() || tag.is_some_and(|tag| self.tags.binary_search_by(|known| known.as_str().cmp(tag)).is_ok())
    }
}

/// Tag hash of a ConsumeQueue unit: Java's `String.hashCode` (over UTF-16 units), sign-extended; 0 for no tag.
#[must_use]
pub fn tags_code(tag: &str) -> i64 {
    i64::from(tag.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hashes_are_javas() {
        let vectors = [
            ("", 0),
            ("a", 97),
            ("TagA", 2_598_919),
            ("polygenelubricants", -2_147_483_648),
            ("TopicTest#0156F7E71C361B21BC024CCDBE00000000", -451_677_854),
            ("Aa", 2112),
            ("BB", 2112),
            ("é", 233),
            ("😀", 1_772_899),
        ];
        for (tag, code) in vectors {
            assert_eq!(tags_code(tag), code, "{tag}");
        }
        assert_eq!(tags_code("polygenelubricants") as u64, 0xFFFF_FFFF_8000_0000);
    }

    #[test]
    fn expressions() {
        for all in ["*", "", "  ", " * ", "a || *"] {
            assert!(TagFilter::parse(all).unwrap().is_all(), "{all:?}");
        }
        let filter = TagFilter::parse(" b||a ||  a||").unwrap();
        assert_eq!(filter.tags(), ["a", "b"]);
        assert!(filter.matches_tag(Some("a")) && !filter.matches_tag(Some("c")) && !filter.matches_tag(None));
        assert!(filter.matches_code(97) && !filter.matches_code(99) && !filter.matches_code(0));
        assert!(TagFilter::all().matches_tag(None) && TagFilter::all().matches_code(0));
        assert_eq!(TagFilter::parse("||"), Err(FilterError::NoTag("||".to_owned())));
        assert!(matches!(TagFilter::parse("a|b"), Err(FilterError::Tag(_))));
        assert!(matches!(TagFilter::parse("a\u{1}b"), Err(FilterError::Tag(_))));
        assert!(matches!(TagFilter::parse(&"a".repeat(5000)), Err(FilterError::TooLong(5000))));
        assert!(matches!(TagFilter::parse(&"a||".repeat(200)), Err(FilterError::TooManyTags(200))));
    }

    #[test]
    fn a_collision_is_sorted_out_by_the_tag() {
        let filter = TagFilter::parse("Aa").unwrap();
        assert!(filter.matches_code(tags_code("BB")) && !filter.matches_tag(Some("BB")));
    }

    proptest! {
        #[test]
        fn arbitrary_expressions_never_panic(expression: String) {
            let _ = TagFilter::parse(&expression);
        }

        #[test]
        fn every_tag_of_an_expression_matches(tags in prop::collection::vec("[a-zA-Z0-9_-]{1,8}", 1..10)) {
            let filter = TagFilter::parse(&tags.join(" || ")).unwrap();
            for tag in &tags {
                prop_assert!(filter.matches_tag(Some(tag)) && filter.matches_code(tags_code(tag)));
            }
        }
    }
}
