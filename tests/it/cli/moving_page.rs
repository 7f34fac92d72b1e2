//! The commands of `docs/MOVING.md` that go to other servers, as they stand there but for the addresses, against real
//! servers. The blocks that need none are run by `clients/rig/pages.py`.

use std::path::Path;

use duetime_testkit::servers::{BeanstalkdServer, Node, RabbitMqServer};
use lapin::options::{BasicPublishOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};

use super::draining::beanstalkd::Peer;
use super::importing::recorded;
use super::{PROGRAM, Said, clean, node, said, to};

/// How a command begins that stands within the text.
const IN_TEXT: [&str; 2] = ["duetime ", "rabbitmqctl "];

/// The commands of the page: each line of those that are indented, and those within the text that say on what they act.
fn commands() -> (Vec<String>, Vec<String>) {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/MOVING.md")).unwrap();
    let unfenced = page.split("```").step_by(2).collect::<String>();
    let indented = unfenced.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect();
    let spans = unfenced.split('`').skip(1).step_by(2);
    let typed = spans.filter(|span| IN_TEXT.iter().any(|program| span.starts_with(program)));
    let acts =
        |span: &&str| span.split(' ').any(|word| word == "TOPIC" || word == "VHOST" || word.ends_with(".moving"));
    (indented, typed.filter(acts).map(str::to_owned).collect())
}

/// A queue `orders.waiting` in the vhost `shop`, in which three messages wait for half an hour.
async fn waiting_orders() -> RabbitMqServer {
    let broker = RabbitMqServer::start_with("default_user = user\ndefault_pass = password\ndefault_vhost = shop").await;
    let url = format!("{}/shop", broker.url("user", "password"));
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let mut arguments = FieldTable::default();
    arguments.insert("x-message-ttl".into(), AMQPValue::LongUInt(1_800_000));
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("orders.due".into()));
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare("orders.waiting".into(), durable, arguments).await.unwrap();
    for n in 0..3 {
        let (options, named) = (BasicPublishOptions::default(), format!("waiting-{n}"));
        let properties = BasicProperties::default().with_message_id(named.into());
        let sent = channel.basic_publish("".into(), "orders.waiting".into(), options, b"order", properties).await;
        sent.unwrap().await.unwrap();
    }
    broker
}

/// Types a line into a shell that finds the program by its name.
fn typed(node: &Node, folder: &Path, line: &str) -> Said {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    said(clean("sh", Some(node)).env("PATH", path).args(["-c", line]).current_dir(folder).output().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_the_page_about_moving_does_what_the_page_says() {
    let (redis, beanstalkd, broker) =
        (recorded("bullmq").await, BeanstalkdServer::start().await, waiting_orders().await);
    let mut producer = Peer::of(beanstalkd.port());
    for _ in 0..3 {
        producer.put(3600, "order");
    }
    let (first, second) = (node().await, node().await);
    to(&first, &["topic", "create", "mails"]).done();
    to(&first, &["topic", "create", "orders", "--remember", "1d"]).done();
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(PROGRAM, folder.path().join("duetime")).unwrap();
    let places = [
        ("redis://10.0.0.5:6379", redis.url()),
        ("10.0.0.5/shop", format!("127.0.0.1:{}/shop", broker.port())),
        ("beanstalkd://10.0.0.5:11300", beanstalkd.url()),
        ("http://10.0.0.9:3830", second.url()),
    ];
    let prints = [
        "5 would be sent, 0 left, 0 refused; nothing was enqueued",
        "verified: 5 the same",
        "3 would be sent",
        "3 scheduled",
        "3 scheduled",
        "6 would be moved",
        "6 moved",
    ];
    let (indented, in_text) = commands();
    assert_eq!(indented.len(), prints.len(), "{indented:#?}");
    for (line, prints) in indented.iter().zip(prints) {
        assert!(line.starts_with("duetime "), "{line}");
        let line = places.iter().fold(line.clone(), |line, (place, url)| line.replace(place, url));
        assert!(!line.contains("10.0.0."), "an address that no server of this test has: {line}");
        let did = typed(&first, folder.path(), &line).done();
        assert!(did.out.contains(prints), "{line}\n{}", did.out);
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("refused.ndjson")).unwrap(), "");

    // The topic of copies is there while a move is under way.
    to(&second, &["topic", "create", "orders.moving"]).done();
    assert!(in_text.len() >= 6, "{in_text:#?}");
    for line in in_text {
        if let Some(asked) = line.strip_prefix("rabbitmqctl ") {
            let asked = asked.replace("VHOST", "shop");
            let listed = broker.control(&asked.split(' ').collect::<Vec<_>>());
            let row = listed.lines().find(|row| row.starts_with("orders.waiting")).expect(&listed);
            assert_eq!(row.split_whitespace().skip(1).collect::<Vec<_>>(), ["0", "0"], "{listed}");
            continue;
        }
        typed(&second, folder.path(), &line.replace("TOPIC", "orders")).done();
    }
}
