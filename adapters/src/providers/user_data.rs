//! Cloud-init user data: the start-up script of an order and the keys that may log in.

use market::order::LeaseOrder;
use serde_json::json;

use crate::error::AdapterError;

/// The script as it is; with keys a multi-part document of cloud-init, which adds them to the login user.
///
/// Errors: [`AdapterError::CannotOrder`] where it is larger than `most` bytes.
pub(super) fn of(order: &LeaseOrder, keys: &[String], most: usize) -> Result<String, AdapterError> {
    if keys.is_empty() {
        return small_enough(order.startup_script.clone(), most);
    }
    small_enough(document(&order.startup_script, &of_keys(keys)), most)
}

/// As [`of`], where root gets a password from the provider that must be changed at the first login. That
/// would keep out everybody who logs in with a key. So root gets a random one that does not expire, and SSH takes
/// no passwords.
///
/// Errors: as [`of`].
pub(super) fn of_root(
    order: &LeaseOrder,
    keys: &[String],
    most: usize,
) -> Result<String, AdapterError> {
    let keys = match keys {
        [] => String::new(),
        keys => of_keys(keys),
    };
    let configuration = format!("{keys}{ROOT_PASSWORD}");
    small_enough(document(&order.startup_script, &configuration), most)
}

/// Source: the module `cc_set_passwords` of cloud-init.
const ROOT_PASSWORD: &str =
    "ssh_pwauth: false\nchpasswd:\n  expire: false\n  list: |\n    root:RANDOM\n";

fn small_enough(document: String, most: usize) -> Result<String, AdapterError> {
    if document.len() > most {
        let why = format!("the start-up script is larger than user data may be ({most} bytes)");
        return Err(AdapterError::CannotOrder(why));
    }
    Ok(document)
}

fn of_keys(keys: &[String]) -> String {
    let keys = keys.iter().map(|key| format!("  - {}\n", json!(key)));
    format!("ssh_authorized_keys:\n{}", keys.collect::<String>())
}

fn document(script: &str, configuration: &str) -> String {
    // A line of a script cannot begin with the hash of that script.
    let boundary = format!("=={}", blake3::hash(script.as_bytes()).to_hex());
    format!(
        "Content-Type: multipart/mixed; boundary=\"{boundary}\"\nMIME-Version: 1.0\n\n\
         --{boundary}\nContent-Type: text/cloud-config\n\n#cloud-config\n{configuration}\n\
         --{boundary}\nContent-Type: text/x-shellscript\n\n{script}\n\
         --{boundary}--\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_wrap_the_script() {
        let script = "#!/bin/sh\necho up\n";
        let wrapped = document(script, &of_keys(&["ssh-ed25519 AAAA second".into()]));
        let keys = "ssh_authorized_keys:\n  - \"ssh-ed25519 AAAA second\"\n";
        assert!(wrapped.contains(keys) && wrapped.contains(script));
        let boundary = wrapped.split('"').nth(1).expect("a boundary");
        assert_eq!(wrapped.matches(&format!("\n--{boundary}\n")).count(), 2);
        assert!(wrapped.ends_with(&format!("--{boundary}--\n")));
    }

    #[test]
    fn a_document_is_as_large_as_it_may_be_and_no_larger() {
        assert!(small_enough("x".repeat(10), 10).is_ok());
        let refused = small_enough("x".repeat(11), 10).expect_err("too large");
        assert!(matches!(refused, AdapterError::CannotOrder(_)));
    }
}
