//! A program around the official Rust SDK that the conformance driver steers (protocol: ../../README.md).
//!
//! The SDK retries nothing and panics where a node is unreachable, so the test retries: each try runs in a task of its
//! own, with the same message id, up to `SEND_TRIES`.

use rocketmq::conf::{ClientOption, LoggingFormat, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageView};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncBufReadExt, BufReader};

const SEND_TRIES: u32 = 10;
const SEND_PAUSE: Duration = Duration::from_millis(20);

/// A message that can be sent again under the id that it has.
#[derive(Clone)]
struct Numbered {
    topic: String,
    n: u64,
    id: String,
}

impl Message for Numbered {
    fn take_message_id(&mut self) -> String {
        self.id.clone()
    }
    fn take_topic(&mut self) -> String {
        self.topic.clone()
    }
    fn take_body(&mut self) -> Vec<u8> {
        body_of(self.n).into_bytes()
    }
    fn take_tag(&mut self) -> Option<String> {
        Some(format!("tag-{}", self.n % 3))
    }
    fn take_keys(&mut self) -> Vec<String> {
        vec![format!("key-{}", self.n)]
    }
    fn take_properties(&mut self) -> HashMap<String, String> {
        HashMap::from([("n".to_string(), self.n.to_string()), ("sdk".to_string(), "rust".to_string())])
    }
    fn take_message_group(&mut self) -> Option<String> {
        None
    }
    fn take_delivery_timestamp(&mut self) -> Option<i64> {
        None
    }
    fn transaction_enabled(&mut self) -> bool {
        false
    }
}

fn body_of(n: u64) -> String {
    format!("{:.<256}", format!("message {n} "))
}

fn say(mut event: Value) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    event["t"] = json!(now.as_millis() as u64);
    println!("{event}");
}

fn report(view: &MessageView) {
    let n = view.properties().get("n").and_then(|n| n.parse::<u64>().ok()).unwrap_or(u64::MAX);
    let good = view.body() == body_of(n).as_bytes()
        && view.tag() == Some(format!("tag-{}", n % 3).as_str())
        && view.keys() == [format!("key-{n}")]
        && view.properties().get("sdk").map(String::as_str) == Some("rust");
    let attempt = view.delivery_attempt();
    say(json!({"e": "got", "via": "simple", "n": n, "id": view.message_id(), "attempt": attempt, "good": good}));
}

fn client_option(endpoints: &str) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(endpoints.replace(';', ","));
    option.set_enable_tls(false);
    option.set_long_polling_timeout(Duration::from_secs(20));
    option
}

async fn start_producer(endpoints: &str, topic: &str) -> Result<Producer, String> {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic.to_string()]);
    option.set_logging_format(LoggingFormat::Json);
    let mut producer = Producer::new(option, client_option(endpoints)).map_err(|error| error.to_string())?;
    producer.start().await.map_err(|error| error.to_string())?;
    Ok(producer)
}

async fn start_consumer(endpoints: &str, topic: &str, group: &str) -> Result<SimpleConsumer, String> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![topic.to_string()]);
    option.set_consumer_group(group);
    option.set_logging_format(LoggingFormat::Json);
    let mut consumer = SimpleConsumer::new(option, client_option(endpoints)).map_err(|error| error.to_string())?;
    consumer.start().await.map_err(|error| error.to_string())?;
    Ok(consumer)
}

async fn send(producer: &Arc<Producer>, message: &Numbered) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..SEND_TRIES {
        let (producer, again) = (producer.clone(), message.clone());
        match tokio::spawn(async move { producer.send(again).await.map(|_| ()) }).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => last = error.to_string(),
            Err(panic) => last = format!("the SDK panicked: {panic}"),
        }
        tokio::time::sleep(SEND_PAUSE).await;
    }
    Err(last)
}

async fn produce(producer: &Arc<Producer>, topic: &str, first: u64, count: u64, rate: f64) {
    let start = Instant::now();
    let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    for n in first..first + count {
        if rate > 0.0 {
            tokio::time::sleep_until((start + Duration::from_secs_f64((n - first) as f64 / rate)).into()).await;
        }
        let began = Instant::now();
        let message = Numbered { topic: topic.to_string(), n, id: format!("conformance-{run}-{n}") };
        match send(producer, &message).await {
            Ok(()) => say(json!({"e": "sent", "n": n, "id": message.id, "ms": began.elapsed().as_millis() as u64})),
            Err(error) => say(json!({"e": "failed", "n": n, "error": error})),
        }
    }
    say(json!({"e": "produced"}));
}

async fn receive(consumer: Arc<SimpleConsumer>, topic: String) {
    loop {
        let (asked, name) = (consumer.clone(), topic.clone());
        let all = FilterExpression::new(FilterType::Tag, "*");
        let got = tokio::spawn(async move {
            asked.receive_with(name, &all, 32, Duration::from_secs(20)).await.map_err(|error| error.to_string())
        });
        let views = match got.await {
            Ok(Ok(views)) => views,
            Ok(Err(error)) => {
                say(json!({"e": "error", "where": "receive", "error": error}));
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
            Err(panic) => {
                say(json!({"e": "error", "where": "receive", "error": panic.to_string()}));
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        for view in views {
            report(&view);
            let acking = consumer.clone();
            let acked = tokio::spawn(async move { acking.ack(&view).await.map_err(|error| error.to_string()) }).await;
            if !matches!(acked, Ok(Ok(()))) {
                say(json!({"e": "error", "where": "ack", "error": format!("{acked:?}")}));
            }
        }
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let args: HashMap<&str, &str> = words.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
    let (endpoints, topic) = (args["--endpoints"], args["--topic"]);
    let producer = Arc::new(start_producer(endpoints, topic).await.expect("the producer starts"));
    let consumer = start_consumer(endpoints, topic, args["--simple-group"]).await.expect("the consumer starts");
    tokio::spawn(receive(Arc::new(consumer), topic.to_string()));
    say(json!({"e": "ready"}));

    let (jobs, mut queue) = tokio::sync::mpsc::channel::<(u64, u64, f64)>(16);
    let name = topic.to_string();
    tokio::spawn(async move {
        while let Some((first, count, rate)) = queue.recv().await {
            produce(&producer, &name, first, count, rate).await;
        }
    });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let command: Vec<&str> = line.split_whitespace().collect();
        match command[..] {
            ["produce", first, count, rate] => {
                let job = (first.parse().unwrap_or(0), count.parse().unwrap_or(0), rate.parse().unwrap_or(0.0));
                let _ = jobs.send(job).await;
            }
            ["quit"] => break,
            _ => {}
        }
    }
    say(json!({"e": "bye"}));
    std::process::exit(0);
}
