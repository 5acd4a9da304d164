//! The parts of a machine's user data that cloud-init would run: a script as it is, or the shell scripts
//! among the parts of a multi-part document, and the public keys of its configuration. Everything else
//! changes nothing on a pretend node.

/// The script in this user data, if there is one.
pub(crate) fn script_in(user_data: &str) -> Option<String> {
    // An empty script runs nothing: its nodes come up all the same.
    if user_data.is_empty() || user_data.starts_with("#!") {
        return Some(user_data.to_owned());
    }
    let scripts = parts_of_kind(user_data, "text/x-shellscript");
    scripts.into_iter().find(|part| part.starts_with("#!"))
}

/// The public keys in the configuration of this user data: a list of quoted texts.
pub(crate) fn keys_in(user_data: &str) -> Vec<String> {
    let configurations = parts_of_kind(user_data, "text/cloud-config");
    let lists = configurations.iter().flat_map(|part| {
        part.lines()
            .skip_while(|line| *line != "ssh_authorized_keys:")
            .skip(1)
            .map_while(|line| line.trim_start().strip_prefix("- "))
    });
    lists
        .filter_map(|quoted| serde_json::from_str(quoted).ok())
        .collect()
}

/// The parts of one kind of a multi-part document; none for any other text.
fn parts_of_kind(user_data: &str, kind: &str) -> Vec<String> {
    let of_document = || {
        let (headers, body) = split_headers(user_data)?;
        let document = header(headers, "content-type")?;
        if !document.to_ascii_lowercase().starts_with("multipart/") {
            return None;
        }
        let boundary = document
            .split_once("boundary=")?
            .1
            .split(';')
            .next()?
            .trim()
            .trim_matches('"');
        Some(parts(body, &format!("--{boundary}")))
    };
    let of_kind = |part: String| {
        let (headers, content) = split_headers(&part)?;
        let is_it = header(headers, "content-type")?
            .to_ascii_lowercase()
            .starts_with(kind);
        is_it.then(|| content.to_owned())
    };
    let parts = of_document().unwrap_or_default();
    parts.into_iter().filter_map(of_kind).collect()
}

/// Everything before the first empty line, and everything after it.
fn split_headers(text: &str) -> Option<(&str, &str)> {
    text.split_once("\r\n\r\n")
        .or_else(|| text.split_once("\n\n"))
}

fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = headers.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// The text between two delimiter lines; the last one ends in two hyphens.
fn parts(body: &str, delimiter: &str) -> Vec<String> {
    let last = format!("{delimiter}--");
    let mut parts: Vec<String> = Vec::new();
    for line in body.split_inclusive('\n') {
        let text = line.trim_end();
        if text == last {
            break;
        }
        if text == delimiter {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_itself_and_a_configuration_is_none() {
        assert_eq!(
            script_in("#!/bin/sh\necho up\n").as_deref(),
            Some("#!/bin/sh\necho up\n")
        );
        assert_eq!(script_in("#cloud-config\nruncmd: [ls]\n"), None);
    }

    #[test]
    fn a_machine_that_is_given_nothing_comes_up_and_runs_nothing() {
        assert_eq!(script_in("").as_deref(), Some(""));
    }

    #[test]
    fn the_shell_script_of_a_multi_part_document_is_found() {
        let document = "Content-Type: multipart/mixed; boundary=\"==edge\"\nMIME-Version: 1.0\n\n\
            --==edge\nContent-Type: text/cloud-config\n\n#cloud-config\nkeys:\n\n  - one\n\n\
            --==edge\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n\necho --==edge\n\n--==edge--\n";
        assert_eq!(
            script_in(document).as_deref(),
            Some("#!/bin/sh\n\necho --==edge\n\n")
        );
        assert_eq!(
            script_in(&document.replace('\n', "\r\n")).as_deref(),
            Some("#!/bin/sh\r\n\r\necho --==edge\r\n\r\n")
        );
        assert_eq!(script_in(&document.replace("x-shellscript", "plain")), None);
        assert_eq!(
            script_in(&document.replace("multipart/mixed", "text/plain")),
            None
        );
    }

    #[test]
    fn keys_of_a_configuration_are_let_in() {
        let document = "Content-Type: multipart/mixed; boundary=\"==edge\"\nMIME-Version: 1.0\n\n\
            --==edge\nContent-Type: text/cloud-config\n\n#cloud-config\nssh_authorized_keys:\n  \
            - \"ssh-ed25519 AAAA one\"\n  - \"ssh-rsa BBBB\"\n\n\
            --==edge\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n--==edge--\n";
        assert_eq!(keys_in(document), ["ssh-ed25519 AAAA one", "ssh-rsa BBBB"]);
        assert!(keys_in("#!/bin/sh\n").is_empty());
    }
}
