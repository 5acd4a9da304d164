//! What cloud-init would run of the user data of a machine: a script as it is, or the shell
//! scripts among the parts of a multi-part document. Everything else (`#cloud-config`, archives)
//! changes nothing on a pretend node.

/// The script in this user data, if there is one.
pub(crate) fn script_in(user_data: &str) -> Option<String> {
    if user_data.starts_with("#!") {
        return Some(user_data.to_owned());
    }
    let (headers, body) = split_headers(user_data)?;
    let kind = header(headers, "content-type")?;
    if !kind.to_ascii_lowercase().starts_with("multipart/") {
        return None;
    }
    let boundary = kind
        .split_once("boundary=")?
        .1
        .split(';')
        .next()?
        .trim()
        .trim_matches('"');
    let delimiter = format!("--{boundary}");
    parts(body, &delimiter).into_iter().find_map(|part| {
        let (headers, script) = split_headers(&part)?;
        let kind = header(headers, "content-type")?;
        let is_script = kind.to_ascii_lowercase().starts_with("text/x-shellscript");
        (is_script && script.starts_with("#!")).then(|| script.to_owned())
    })
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

/// What stands between two lines that are the delimiter; the last one ends in two hyphens.
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
        assert_eq!(script_in(""), None);
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
}
