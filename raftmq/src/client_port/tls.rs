//! The client port's certificate: the configured one, or one made at start.

use crate::config::Tls;
use crate::exit::Failure;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;
use std::sync::Arc;

/// TLS settings of the client port, with ALPN `h2`. `host` goes into a certificate that is made here. Errors: a sentence
/// that names the file.
pub(crate) fn server_config(tls: &Tls, host: &str) -> Result<Arc<ServerConfig>, Failure> {
    let (chain, key) = if tls.certificate_path.as_os_str().is_empty() {
        self_signed(host)?
    } else {
        (read_chain(&tls.certificate_path)?, read_key(&tls.key_path)?)
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::failed(format!("TLS cannot be set up: {error}")))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| Failure::usage(format!("the TLS certificate and key do not go together: {error}")))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A certificate for `host` and for this machine's loopback names, with a fresh key that is never written to disk.
fn self_signed(host: &str) -> Result<Identity, Failure> {
    let names = vec![host.to_string(), "localhost".to_string(), "127.0.0.1".to_string(), "::1".to_string()];
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| Failure::failed(format!("no TLS certificate can be made for {host}: {error}")))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((vec![made.cert.der().clone()], PrivateKeyDer::from(key)))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let bad = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("tls.certificate_path: {} holds no certificate chain: {error}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(&error))?;
    if chain.is_empty() { Err(bad(&"it is empty")) } else { Ok(chain) }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, Failure> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| Failure::usage(format!("tls.key_path: {} holds no private key: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_when_none_is_configured() {
        let config = server_config(&Tls::default(), "node-1.example").expect("made");
        assert_eq!(config.alpn_protocols, [b"h2".to_vec()]);
    }

    #[test]
    fn a_configured_certificate_is_read_and_mistakes_name_the_file() {
        let dir = tempfile::tempdir().expect("dir");
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).expect("made");
        let tls = Tls { certificate_path: dir.path().join("c.pem"), key_path: dir.path().join("k.pem") };
        let missing = server_config(&tls, "h").expect_err("no file");
        assert!(missing.sentence.contains("c.pem"), "{missing}");
        std::fs::write(&tls.certificate_path, made.cert.pem()).expect("write");
        std::fs::write(&tls.key_path, made.signing_key.serialize_pem()).expect("write");
        server_config(&tls, "h").expect("valid");
        std::fs::write(&tls.key_path, "not a key").expect("write");
        assert!(server_config(&tls, "h").expect_err("no key").sentence.contains("k.pem"));
    }
}
