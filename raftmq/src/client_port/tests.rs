use super::*;
use raftmq_proto::v2::HeartbeatRequest;
use raftmq_proto::v2::messaging_service_client::MessagingServiceClient;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
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
    let tls = tls::server_config(&crate::config::Tls::default(), "127.0.0.1").expect("tls");
    let port = ClientPort { address: "127.0.0.1:0".parse().expect("address"), limits, tls };
    let listener = port.listen().await.expect("listen");
    let address = listener.local_addr().expect("address");
    Port { address, open: port.open(listener, tonic::service::Routes::default()) }
}

async fn clear(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).expect("uri").connect().await.expect("connect")
}

async fn under_tls(address: SocketAddr) -> Channel {
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustAnything))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let service = tower::service_fn(move |_: Uri| {
        let connector = connector.clone();
        async move {
            let stream = TcpStream::connect(address).await?;
            let name = ServerName::try_from("anything").expect("name");
            let stream = connector.connect(name, stream).await?;
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
            io::Result::Ok(hyper_util::rt::TokioIo::new(stream))
        }
    });
    // The scheme is for tonic; TLS is in the connector.
    Endpoint::from_static("http://anything").connect_with_connector(service).await.expect("connect")
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
    assert_eq!(call(under_tls(port.address).await).await, tonic::Code::Unimplemented);
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
    let tls = tls::server_config(&crate::config::Tls::default(), "127.0.0.1").expect("tls");
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

#[derive(Debug)]
struct TrustAnything;

impl ServerCertVerifier for TrustAnything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519, SignatureScheme::RSA_PSS_SHA256]
    }
}
