//! The client port over loopback: clear and TLS clients, garbage, silence, cutting and draining.

use super::*;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use raftmq_proto::v2::HeartbeatRequest;
use raftmq_proto::v2::messaging_service_client::MessagingServiceClient;
use std::pin::Pin;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};

const LIMITS: ClientPortLimits =
    ClientPortLimits { connections_count_max: 4, handshakes_count_max: 2, handshake_ms_max: 200, calls_count_max: 16 };

struct Port {
    address: SocketAddr,
    open: OpenClientPort,
}

/// A port that answers UNIMPLEMENTED to every call: enough to see that HTTP/2 works.
async fn port(limits: ClientPortLimits) -> Port {
    let tls = tls::acceptor(&crate::config::Tls::default(), "127.0.0.1").expect("tls");
    let port = ClientPort { address: "127.0.0.1:0".parse().expect("address"), limits, tls };
    let listener = port.listen().await.expect("listen");
    let address = listener.local_addr().expect("address");
    Port { address, open: port.open(listener, tonic::service::Routes::default()) }
}

async fn clear(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).expect("uri").connect().await.expect("connect")
}

/// Over TLS as the Go SDK speaks it: whatever certificate, and the list of addresses as server name.
async fn under_tls(address: SocketAddr, name: &'static str) -> Channel {
    let service = tower::service_fn(move |_: Uri| async move {
        let mut connector = SslConnector::builder(SslMethod::tls_client())?;
        connector.set_verify(SslVerifyMode::NONE);
        connector.set_alpn_protos(b"\x02h2")?;
        let mut ssl =
            connector.build().configure()?.verify_hostname(false).use_server_name_indication(false).into_ssl(name)?;
        ssl.set_hostname(name)?;
        let mut stream = tokio_openssl::SslStream::new(ssl, TcpStream::connect(address).await?)?;
        Pin::new(&mut stream).connect().await.map_err(io::Error::other)?;
        assert_eq!(stream.ssl().selected_alpn_protocol(), Some(b"h2".as_slice()));
        io::Result::Ok(hyper_util::rt::TokioIo::new(stream))
    });
    // The scheme is for tonic; TLS is in the connector.
    Endpoint::from_static("http://anything").connect_with_connector(service).await.expect("connect")
}

/// A call whose `:authority` is a list of addresses, as Python's and Go's are; the type of the first frame of the answer
/// beside SETTINGS, WINDOW_UPDATE and PING.
async fn answer_to_list(address: SocketAddr) -> u8 {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let mut block = b"\x83\x86\x44\x04/a/b\x41\x1d127.0.0.1:9000,127.0.0.1:9001".to_vec();
    block.extend_from_slice(b"\x40\x02te\x08trailers\x5f\x10application/grpc");
    let mut bytes = accept::PREFACE.to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1]);
    bytes.extend_from_slice(&block);
    stream.write_all(&bytes).await.expect("write");
    loop {
        let mut header = [0u8; 9];
        stream.read_exact(&mut header).await.expect("a frame");
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        stream.read_exact(&mut vec![0u8; length as usize]).await.expect("its payload");
        if !matches!(header[3], 4 | 6 | 8) {
            return header[3];
        }
    }
}

#[tokio::test]
async fn a_list_of_addresses_as_authority_is_served() {
    let port = port(LIMITS).await;
    const HEADERS: u8 = 1;
    assert_eq!(answer_to_list(port.address).await, HEADERS, "3 would be a reset");
    port.open.cut().await;
}

#[tokio::test]
async fn a_list_of_addresses_as_tls_server_name_is_served() {
    let port = port(LIMITS).await;
    let channel = under_tls(port.address, "127.0.0.1:9000;127.0.0.1:9001").await;
    assert_eq!(call(channel).await, tonic::Code::Unimplemented);
    port.open.cut().await;
}

/// Any call; the answer of a server without services.
async fn call(channel: Channel) -> tonic::Code {
    let mut client = MessagingServiceClient::new(channel);
    client.heartbeat(HeartbeatRequest::default()).await.expect_err("no service").code()
}

#[tokio::test]
async fn clear_and_tls_clients_share_the_port() {
    let port = port(LIMITS).await;
    assert_eq!(call(clear(port.address).await).await, tonic::Code::Unimplemented);
    assert_eq!(call(under_tls(port.address, "localhost").await).await, tonic::Code::Unimplemented);
    assert_eq!(call(clear(port.address).await).await, tonic::Code::Unimplemented);
    port.open.cut().await;
}

#[tokio::test]
async fn what_is_neither_tls_nor_http2_is_closed_and_the_port_stays_open() {
    let port = port(LIMITS).await;
    for garbage in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[0x16, 3, 1, 0, 4, 9, 9, 9, 9], &[0; 64]] {
        let mut stream = TcpStream::connect(port.address).await.expect("connect");
        stream.write_all(garbage).await.expect("write");
        let mut answer = Vec::new();
        // Closed or reset; TLS may answer with an alert first.
        let _ = stream.read_to_end(&mut answer).await;
    }
    assert_eq!(call(clear(port.address).await).await, tonic::Code::Unimplemented);
    port.open.cut().await;
}

#[tokio::test]
async fn silent_connections_are_closed_in_time_and_bounded_in_number() {
    let port = port(LIMITS).await;
    let mut first = TcpStream::connect(port.address).await.expect("connect");
    let mut second = TcpStream::connect(port.address).await.expect("connect");
    second.write_all(&PREFACE_START).await.expect("write");
    // A third one is over `handshakes_count_max` and closed at once, while the first two still may speak.
    let mut third = TcpStream::connect(port.address).await.expect("connect");
    let mut byte = [0u8; 1];
    assert!(matches!(third.read(&mut byte).await, Ok(0) | Err(_)));
    assert!(matches!(first.read(&mut byte).await, Ok(0) | Err(_)));
    assert!(matches!(second.read(&mut byte).await, Ok(0) | Err(_)));
    assert_eq!(call(clear(port.address).await).await, tonic::Code::Unimplemented);
    port.open.cut().await;
}

const PREFACE_START: [u8; 3] = *b"PRI";

#[tokio::test]
async fn cut_closes_idle_connections_and_the_listener_and_the_port_opens_again() {
    let tls = tls::acceptor(&crate::config::Tls::default(), "127.0.0.1").expect("tls");
    let mut port = ClientPort { address: "127.0.0.1:0".parse().expect("address"), limits: LIMITS, tls };
    let listener = port.listen().await.expect("listen");
    port.address = listener.local_addr().expect("address");
    let open = port.open(listener, tonic::service::Routes::default());
    let mut idle = TcpStream::connect(port.address).await.expect("connect");
    idle.write_all(accept::PREFACE).await.expect("write");
    // The server's SETTINGS: the connection is in tonic's hands.
    idle.read_exact(&mut [0u8; 9]).await.expect("settings");
    open.cut().await;
    let mut rest = Vec::new();
    let _ = idle.read_to_end(&mut rest).await;
    assert!(TcpStream::connect(port.address).await.is_err(), "the listener must be closed");
    let listener = port.listen().await.expect("listen again");
    let open = port.open(listener, tonic::service::Routes::default());
    assert_eq!(call(clear(port.address).await).await, tonic::Code::Unimplemented);
    open.drain(Duration::from_secs(5)).await;
}
