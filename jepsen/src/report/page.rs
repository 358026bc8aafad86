//! The page of a run: two pictures over time with the faults drawn in, and what was found. One file, nothing to load.

use super::Judgement;
use crate::history::{Call, Event, Phase};
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1100.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 24.0;
const TOP: f64 = 34.0;

/// What happened to the sends of one second.
#[derive(Default)]
struct Second {
    ok: u32,
    unknown: u32,
    fail: u32,
    latencies_us: Vec<u64>,
}

/// The page, as HTML.
#[must_use]
pub fn page(judgement: &Judgement, events: &[Event]) -> String {
    let seconds = seconds(events);
    let length_s = seconds.keys().next_back().map_or(1, |last| last + 1);
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>raftmq-jepsen</title><style>\
         body{font:14px/1.5 system-ui,sans-serif;max-width:1140px;margin:2em auto;color:#222;background:#fff}\
         h1{font-size:20px}h2{font-size:15px;margin:1.6em 0 .2em}pre{background:#f6f6f4;padding:1em;overflow-x:auto}\
         svg text{font:11px system-ui,sans-serif;fill:#555}.legend b{display:inline-block;width:.8em;height:.8em;\
         margin:0 .3em 0 1em}</style></head><body>\n",
    );
    let _ = writeln!(html, "<h1>{}: seed {}</h1>", judgement.verdict(), judgement.seed);
    html.push_str("<p class=\"legend\">sends a second:<b style=\"background:#2a7d4f\"></b>acknowledged<b style=\"background:#d9822b\">\
         </b>unknown<b style=\"background:#c0392b\"></b>failed<b style=\"background:#f3d6d2\"></b>fault in force</p>\n");
    throughput(&mut html, judgement, &seconds, length_s);
    html.push_str("<h2>Latency of acknowledged sends, ms: median and 99th percentile of each second</h2>\n");
    latency(&mut html, judgement, &seconds, length_s);
    let text = judgement.to_string().replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(html, "<h2>Verdicts</h2>\n<pre>{text}</pre>\n</body></html>");
    html
}

fn seconds(events: &[Event]) -> BTreeMap<u64, Second> {
    let mut began: BTreeMap<u64, u64> = BTreeMap::new();
    let mut seconds: BTreeMap<u64, Second> = BTreeMap::new();
    for event in events {
        if let Phase::Invoke { call } = &event.phase {
            if matches!(call, Call::Send { .. }) {
                began.insert(event.op, event.at_us);
            }
            continue;
        }
        let Some(began_us) = began.remove(&event.op) else { continue };
        let second = seconds.entry(event.at_us / 1_000_000).or_default();
        match &event.phase {
            Phase::Ok { .. } => {
                second.ok += 1;
                second.latencies_us.push(event.at_us - began_us);
            }
            Phase::Unknown { .. } => second.unknown += 1,
            Phase::Fail { .. } | Phase::Invoke { .. } => second.fail += 1,
        }
    }
    seconds.values_mut().for_each(|second| second.latencies_us.sort_unstable());
    seconds
}

fn throughput(html: &mut String, judgement: &Judgement, seconds: &BTreeMap<u64, Second>, length_s: u64) {
    let most = seconds.values().map(|second| second.ok + second.unknown + second.fail).max().unwrap_or(1).max(1);
    begin(html, judgement, length_s, true);
    let y = |count: u32| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * f64::from(count) / f64::from(most);
    for count in [0, most / 2, most] {
        rule(html, y(count), &count.to_string());
    }
    let wide = ((WIDTH - LEFT) / length_s as f64).max(0.5);
    for (at, second) in seconds {
        let mut below = 0;
        for (count, color) in [(second.ok, "#2a7d4f"), (second.unknown, "#d9822b"), (second.fail, "#c0392b")] {
            if count > 0 {
                let (x, top, bottom) = (x_of(*at as f64, length_s), y(below + count), y(below));
                let high = bottom - top;
                let _ = writeln!(
                    html,
                    "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"{color}\"/>"
                );
                below += count;
            }
        }
    }
    html.push_str("</svg>\n");
}

fn latency(html: &mut String, judgement: &Judgement, seconds: &BTreeMap<u64, Second>, length_s: u64) {
    begin(html, judgement, length_s, false);
    // From a tenth of a millisecond to ten seconds, each decade the same height.
    let y = |us: u64| {
        let decades = ((us.max(100) as f64) / 100.0).log10().min(5.0);
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * decades / 5.0
    };
    for (us, label) in
        [(100, "0.1"), (1_000, "1"), (10_000, "10"), (100_000, "100"), (1_000_000, "1000"), (10_000_000, "10 s")]
    {
        rule(html, y(us), label);
    }
    for (percent, color) in [(50, "#2a5d9f"), (99, "#8e44ad")] {
        let mut points = String::new();
        for (at, second) in seconds {
            let place = second.latencies_us.len() * percent / 100;
            if let Some(us) = second.latencies_us.get(place.min(second.latencies_us.len().saturating_sub(1))) {
                let _ = write!(points, "{:.1},{:.1} ", x_of(*at as f64 + 0.5, length_s), y(*us));
            }
        }
        let _ = writeln!(html, "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.2\" points=\"{points}\"/>");
    }
    html.push_str("</svg>\n");
}

fn x_of(second: f64, length_s: u64) -> f64 {
    LEFT + (WIDTH - LEFT) * second / length_s as f64
}

/// The axis of time and the faults. Names are written where they fit and are tooltips everywhere.
fn begin(html: &mut String, judgement: &Judgement, length_s: u64, named: bool) {
    let _ = writeln!(html, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\" role=\"img\">");
    let mut free_from = [0.0; 2];
    for window in &judgement.windows {
        let (from, to) = (x_of(window.from_us as f64 / 1e6, length_s), x_of(window.to_us as f64 / 1e6, length_s));
        let (wide, high) = ((to - from).max(1.0), HEIGHT - BOTTOM - TOP);
        let _ = writeln!(
            html,
            "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{wide:.1}\" height=\"{high}\" fill=\"#f3d6d2\"><title>{} on nodes {:?}</title></rect>",
            window.fault, window.nodes
        );
        let name = window.fault.to_string();
        if named && let Some(row) = free_from.iter().position(|free| *free <= from) {
            free_from[row] = from + 6.2 * name.len() as f64;
            let _ = writeln!(html, "<text x=\"{from:.1}\" y=\"{}\">{name}</text>", 12 + 14 * row);
        }
    }
    let step = (length_s / 10).max(1);
    for second in (0..=length_s).step_by(usize::try_from(step).unwrap_or(1)) {
        let _ =
            writeln!(html, "<text x=\"{:.1}\" y=\"{}\">{second} s</text>", x_of(second as f64, length_s), HEIGHT - 8.0);
    }
}

fn rule(html: &mut String, y: f64, label: &str) {
    let _ = writeln!(
        html,
        "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\" stroke-width=\"0.7\"/>"
    );
    let _ = writeln!(html, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 6.0, y + 4.0);
}
