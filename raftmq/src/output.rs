//! What commands print: data to stdout (a table for people or one JSON document), everything else to stderr.

use crate::exit::Failure;
use serde::Serialize;
use std::io::Write;

/// A table whose columns are as wide as their widest cell; numbers are right-aligned.
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(header: &[&'static str]) -> Table {
        Table { header: header.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub(crate) fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.header.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    /// The table as text, one line for the header and one for each row.
    pub(crate) fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.header[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let numeric: Vec<bool> = (0..self.header.len())
            .map(|column| !self.rows.is_empty() && self.rows.iter().all(|row| is_number(&row[column])))
            .collect();
        let mut text = line(&self.header.iter().map(ToString::to_string).collect::<Vec<_>>(), &widths, &numeric);
        for row in &self.rows {
            text.push_str(&line(row, &widths, &numeric));
        }
        text
    }
}

fn is_number(cell: &str) -> bool {
    cell == "-" || cell.parse::<f64>().is_ok()
}

fn line(cells: &[String], widths: &[usize], numeric: &[bool]) -> String {
    let padded: Vec<String> = cells
        .iter()
        .zip(widths)
        .zip(numeric)
        .map(|((cell, width), right)| if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") })
        .collect();
    format!("{}\n", padded.join("  ").trim_end())
}

/// Prints text to stdout as it is. A reader that went away (`| head`) is not a failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    judge(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())).map(|_| ())
}

/// Prints a value as one JSON document and a line break.
pub(crate) fn print_json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::failed(format!("the result cannot be written as JSON: {error}")))?;
    print(&format!("{text}\n"))
}

/// Results that come one line after the other, however many there are.
pub(crate) struct Lines(std::io::BufWriter<std::io::StdoutLock<'static>>);

impl Lines {
    /// Takes stdout.
    pub(crate) fn new() -> Lines {
        Lines(std::io::BufWriter::new(std::io::stdout().lock()))
    }

    /// Prints text as it is; false when the reader went away, which is not a failure.
    pub(crate) fn text(&mut self, text: &str) -> Result<bool, Failure> {
        let written = self.0.write_all(text.as_bytes());
        judge(written)
    }

    /// Prints a value as one line of JSON; false when the reader went away.
    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> Result<bool, Failure> {
        let text = serde_json::to_string(value)
            .map_err(|error| Failure::failed(format!("the result cannot be written as JSON: {error}")))?;
        self.text(&format!("{text}\n"))
    }

    /// Prints what is still waiting.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        let flushed = self.0.flush();
        judge(flushed).map(|_| ())
    }
}

fn judge(written: std::io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::failed(format!("the result cannot be written: {error}"))),
    }
}

/// Tells the person at the terminal something that is not the result: stderr.
pub(crate) fn tell(sentence: &str) {
    // Nobody may be listening; there is no other place to say it.
    let _ = writeln!(std::io::stderr().lock(), "{sentence}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["NAME", "LAG"]);
        table.row(["a".to_string(), "5".to_string()]);
        table.row(["longer".to_string(), "1000".to_string()]);
        assert_eq!(table.render(), "NAME     LAG\na          5\nlonger  1000\n");
    }
}
