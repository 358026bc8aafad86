//! The client port's certificate: the configured one, or one made at start.

use crate::config::Tls;
use crate::exit::Failure;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::ssl::{AlpnError, SslAcceptor, SslAcceptorBuilder, SslFiletype, SslMethod, select_next_proto};
use openssl::x509::X509;
use std::path::Path;

/// ALPN: the one protocol that is spoken, with its length before it.
const ALPN_H2: &[u8] = b"\x02h2";

/// TLS settings of the client port, with ALPN `h2`. `host` goes into a certificate that is made here. Errors: a sentence
/// that names the file.
pub(crate) fn acceptor(tls: &Tls, host: &str) -> Result<SslAcceptor, Failure> {
    let broken = |error: ErrorStack| Failure::failed(format!("TLS cannot be set up: {error}"));
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).map_err(broken)?;
    if tls.certificate_path.as_os_str().is_empty() {
        self_signed(&mut builder, host)?;
    } else {
        configured(&mut builder, &tls.certificate_path, &tls.key_path)?;
    }
    builder.set_alpn_select_callback(|_, offered| select_next_proto(ALPN_H2, offered).ok_or(AlpnError::NOACK));
    Ok(builder.build())
}

/// A certificate for `host` and for this machine's loopback names, with a fresh key that is never written to disk.
fn self_signed(builder: &mut SslAcceptorBuilder, host: &str) -> Result<(), Failure> {
    let bad =
        |error: &dyn std::fmt::Display| Failure::failed(format!("no TLS certificate can be made for {host}: {error}"));
    let names = vec![host.to_string(), "localhost".to_string(), "127.0.0.1".to_string(), "::1".to_string()];
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| bad(&error))?;
    let certificate = X509::from_der(made.cert.der()).map_err(|error| bad(&error))?;
    let key = PKey::private_key_from_der(&made.signing_key.serialize_der()).map_err(|error| bad(&error))?;
    builder.set_certificate(&certificate).map_err(|error| bad(&error))?;
    builder.set_private_key(&key).map_err(|error| bad(&error))
}

fn configured(builder: &mut SslAcceptorBuilder, certificate: &Path, key: &Path) -> Result<(), Failure> {
    builder.set_certificate_chain_file(certificate).map_err(|error| {
        let path = certificate.display();
        Failure::usage(format!("tls.certificate_path: {path} holds no certificate chain: {error}"))
    })?;
    builder
        .set_private_key_file(key, SslFiletype::PEM)
        .map_err(|error| Failure::usage(format!("tls.key_path: {} holds no private key: {error}", key.display())))?;
    builder
        .check_private_key()
        .map_err(|error| Failure::usage(format!("the TLS certificate and key do not go together: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_when_none_is_configured() {
        assert!(acceptor(&Tls::default(), "node-1.example").is_ok());
    }

    #[test]
    fn a_configured_certificate_is_read_and_mistakes_name_the_file() {
        let dir = tempfile::tempdir().expect("dir");
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).expect("made");
        let tls = Tls { certificate_path: dir.path().join("c.pem"), key_path: dir.path().join("k.pem") };
        let sentence = |tls: &Tls| acceptor(tls, "h").err().map(|failure| failure.sentence).expect("a failure");
        assert!(sentence(&tls).contains("c.pem"));
        std::fs::write(&tls.certificate_path, made.cert.pem()).expect("write");
        std::fs::write(&tls.key_path, made.signing_key.serialize_pem()).expect("write");
        assert!(acceptor(&tls, "h").is_ok());
        std::fs::write(&tls.key_path, "not a key").expect("write");
        assert!(sentence(&tls).contains("k.pem"));
    }
}
