//! `broker providers add`, `check`, `rotate` and `forget`: the credential that connects a
//! provider.

use std::path::Path;

use market::counted::counted;
use market::ids::ProviderId;
use secrecy::SecretString;
use store::providers::{Provider, ProviderChange};
use store::settings::DatabaseMode;

use super::{AddArgs, CheckArgs, Desk, OneArgs, RotateArgs, cause, refused, unknown};
use crate::cli::input::read_text;
use crate::flow::providers::{
    self, CheckedProvider, LinkError, adapter_of, check, connect_entered, connect_row,
};
use crate::platform::clock::{Clock as _, SystemClock};
use crate::platform::provider_set::ProviderLink;
use crate::service::start;
use crate::terminal::ending::Ending;
use crate::terminal::text::{print_line, print_text};

/// Reads a credential: the file without white space at its start and end.
fn read_credential(file: &Path) -> Result<SecretString, Ending> {
    let text = read_text("the credential", file)?;
    Ok(SecretString::from(text.trim()))
}

/// Asks the provider once whether it accepts the credential. No reply is not a refusal.
async fn accepted(link: &ProviderLink) -> Result<CheckedProvider, Ending> {
    let checked = check(link, SystemClock.now()).await;
    match checked.refused_credential() {
        None => Ok(checked),
        Some(why) => Err(Ending::No(format!(
            "nothing was stored, because {} does not accept the credential: {why}; check it there and \
             try again",
            link.adapter.profile().name
        ))),
    }
}

/// The result of reading with a credential, for people.
fn found(checked: &CheckedProvider) -> String {
    let CheckedProvider {
        offers, in_stock, ..
    } = checked;
    match &checked.detail {
        Some(detail) => format!("It could not be read yet: {detail}."),
        None => format!(
            "Its catalogue holds {}, {in_stock} of them in stock.",
            counted(*offers, "offer")
        ),
    }
}

pub(super) async fn add(args: &AddArgs) -> Result<(), Ending> {
    let id = &args.one.id;
    let adapter = adapter_of(id.as_str()).map_err(Ending::wrong_input)?;
    let credential = read_credential(&args.credential_file)?;
    let desk = Desk::open_or_make(&args.one.form).await?;
    desk.not_configured(id)?;
    let sealing = desk.sealing_key().await?;
    let base_url = args.base_url.as_deref();
    let link = connect_entered(adapter, &credential, base_url, desk.mode);
    let checked = accepted(&link.map_err(Ending::wrong_input)?).await?;
    let now = SystemClock.now();
    let change = ProviderChange {
        enabled: Some(!args.disabled),
        base_url: Some(args.base_url.clone()),
        credential: Some(Some(providers::seal(&sealing, id, &credential, now))),
        quarantine: None,
    };
    let cause = cause("providers add", id);
    let entered = desk.store.providers().enter(id, &change, now, &cause).await;
    let provider = entered.map_err(|error| refused(id, error))?;
    desk.tell(&provider, &format!("Added {id}. {}", found(&checked)))
        .await
}

pub(super) async fn check_one(args: &CheckArgs) -> Result<(), Ending> {
    let (id, form) = (&args.one.id, &args.one.form);
    let credential = args.credential_file.as_deref().map(read_credential);
    let credential = credential.transpose()?;
    let desk = Desk::open(form).await?;
    let known = desk.store.providers().find(id).await?;
    let link = if let Some(credential) = credential {
        let adapter = adapter_of(id.as_str()).map_err(Ending::wrong_input)?;
        let known = known.and_then(|row| row.base_url);
        let base_url = args.base_url.as_deref().or(known.as_deref());
        let link = connect_entered(adapter, &credential, base_url, desk.mode);
        link.map_err(Ending::wrong_input)?
    } else {
        connected(&desk, id, known).await?
    };
    let checked = check(&link, SystemClock.now()).await;
    if desk.json {
        print_line(&serde_json::to_string(&checked)?)?;
    } else if checked.ok {
        print_text(&format!("{id} answers. {}", found(&checked)))?;
        let skipped = checked.skipped_by_reason.iter();
        for (reason, records) in skipped.filter(|(_, records)| **records > 0) {
            let verb = if *records == 1 { "is" } else { "are" };
            let records = counted(*records, "record");
            print_text(&format!("{records} {verb} no offer: {reason}"))?;
        }
    }
    match checked.detail {
        None => Ok(()),
        Some(detail) => Err(Ending::No(format!("{id} cannot be read: {detail}"))),
    }
}

/// The connection of the service to a provider.
async fn connected(
    desk: &Desk,
    id: &ProviderId,
    known: Option<Provider>,
) -> Result<ProviderLink, Ending> {
    if let Some(settings) = desk.config.providers.get(id)
        && settings.enabled
    {
        let link = start::configured_link(id, settings, desk.mode);
        return link.map_err(Ending::cannot_start);
    }
    let row = known.ok_or_else(|| unknown(id))?;
    let sealing = desk.sealing_key().await?;
    let link = connect_row(&sealing, &row, desk.mode).map_err(Ending::wrong_input)?;
    link.ok_or_else(|| match desk.mode {
        // Providers started by `serve --simulate` are connected only in its own process.
        DatabaseMode::Simulation => Ending::No(format!(
            "{id} is part of the market that the running service simulates, and only that service is \
             connected to it; call `POST /v1/providers/{id}/check` with an administrator's key, or run \
             `broker providers list` to see when it was last read"
        )),
        DatabaseMode::Production => Ending::wrong_input(format!(
            "there is no credential for {id}; try one with --credential-file, or add it with `broker \
             providers add {id}`"
        )),
    })
}

pub(super) async fn rotate(args: &RotateArgs) -> Result<(), Ending> {
    let id = &args.one.id;
    let credential = read_credential(&args.credential_file)?;
    let desk = Desk::open(&args.one.form).await?;
    desk.not_configured(id)?;
    let row = desk.find(id).await?;
    let sealing = desk.sealing_key().await?;
    let link = adapter_of(id.as_str())
        .and_then(|adapter| {
            connect_entered(adapter, &credential, row.base_url.as_deref(), desk.mode)
        })
        .map_err(|error: LinkError| Ending::wrong_input(error))?;
    let checked = accepted(&link).await?;
    let sealed = providers::seal(&sealing, id, &credential, SystemClock.now());
    let change = ProviderChange {
        credential: Some(Some(sealed)),
        ..ProviderChange::default()
    };
    let provider = desk.change(id, "providers rotate", &change).await?;
    let told = format!("Changed the credential of {id}. {}", found(&checked));
    desk.tell(&provider, &told).await
}

pub(super) async fn forget(args: &OneArgs) -> Result<(), Ending> {
    let desk = Desk::open(&args.form).await?;
    let id = &args.id;
    desk.not_configured(id)?;
    if desk.find(id).await?.credential.is_none() {
        return Err(Ending::No(format!(
            "no credential was stored for {id}, so there is none to forget; `broker providers list` \
             shows how each is connected"
        )));
    }
    let change = ProviderChange {
        credential: Some(None),
        ..ProviderChange::default()
    };
    let provider = desk.change(id, "providers forget", &change).await?;
    desk.tell(&provider, &format!("Deleted the credential of {id}."))
        .await
}
