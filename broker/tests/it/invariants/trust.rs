//! Visibility for callers (13), and real against simulated (14). `start` tests a broker's refusals to start,
//! and `tenants` the answers of its API to strangers.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use broker::flow::plan::PlanError;
use broker::flow::quote::QuoteError;
use broker::flow::reserve::{self, Particulars, ReserveError};
use broker::flow::{plan, quote};
use broker::platform::clock::SystemClock;
use broker::platform::config::Config;
use broker::platform::start_error::StartError;
use broker::service::start;
use chrono::TimeDelta;
use market::gpu::Gpu;
use market::identity::TenantScope;
use market::ids::{LeaseId, ProjectId, ReservationId, TenantId, VerificationId};
use market::verification::{AgentBuild, Commit, DeviceKind, Digest, Level, PROTOCOL};
use serde_json::Value;

use store::StoreError;
use store::fixture::{for_each_database, for_usual_database};
use store::settings::DatabaseMode;
use uuid::Uuid;
use verifier::attest::verify_attestation;
use verifier::challenge::{Opening, Session, StepError};
use verifier::jws::{DocumentType, Header, Signer};
use verifier::order::{Mode, expected_node, order_for};

use crate::lifecycle::scene::{Scene, training};

#[tokio::test(flavor = "multi_thread")]
async fn invariant_13_ids_of_another_tenant_are_unknown_to_every_stage() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let broker = scene.broker();
        let owner = TenantScope::whole(scene.tenant);
        let demand = || serde_json::from_value(training(8)).expect("a demand");
        let made = plan::make_plan(broker, &owner, demand())
            .await
            .expect("a plan");
        let quoted = quote::make_quote(broker, &owner, made.id, 1, None)
            .await
            .expect("a quote");
        let id = scene.hold(training(8)).await;
        let own = reserve::find(broker, &owner, id).await.expect("its own");

        let stranger = TenantId::from_uuid(broker.new_uuid());
        let project = ProjectId::from_uuid(broker.new_uuid());
        store
            .tenants()
            .ensure("other", stranger, project, broker.now())
            .await
            .expect("a tenant");
        let outside = TenantScope::whole(stranger);
        let plan = plan::find(broker, &outside, made.id).await;
        assert!(matches!(plan, Err(PlanError::Unknown(unknown)) if unknown == made.id));
        let quote = quote::find(broker, &outside, quoted.id).await;
        assert!(matches!(quote, Err(QuoteError::Unknown(unknown)) if unknown == quoted.id));
        let quote = quote::make_quote(broker, &outside, made.id, 1, None).await;
        assert!(matches!(
            quote,
            Err(QuoteError::Plan(PlanError::Unknown(_)))
        ));
        let held = reserve::hold(broker, &outside, quoted.id, Particulars::default(), None).await;
        assert!(
            matches!(held, Err(ReserveError::Quote(QuoteError::Unknown(_)))),
            "{held:?}"
        );
        let end = broker.now() + TimeDelta::days(9);
        for refused in [
            reserve::find(broker, &outside, id).await,
            reserve::confirm(broker, stranger, id, None).await,
            reserve::cancel(broker, stranger, id, None).await,
            reserve::release(broker, stranger, id, None).await,
            reserve::extend(broker, stranger, id, end, None).await,
        ] {
            assert!(matches!(refused, Err(ReserveError::Unknown(unknown)) if unknown == id));
        }
        // A caller may not use a thing that it may not name.
        let theirs = plan::make_plan(broker, &outside, demand())
            .await
            .expect("a plan");
        let theirs = quote::make_quote(broker, &outside, theirs.id, 1, None)
            .await
            .expect("a quote");
        let keys = store
            .ssh_keys()
            .of(scene.tenant)
            .list()
            .await
            .expect("keys");
        let with_key = Particulars {
            ssh_key_ids: Some(vec![keys[0].id]),
            ..Particulars::default()
        };
        let held = reserve::hold(broker, &outside, theirs.id, with_key, None).await;
        assert!(
            matches!(held, Err(ReserveError::UnknownSshKey(_))),
            "{held:?}"
        );
        let with_project = Particulars {
            project_id: Some(own.project_id),
            ..Particulars::default()
        };
        let held = reserve::hold(broker, &outside, theirs.id, with_project, None).await;
        assert!(
            matches!(held, Err(ReserveError::UnknownProject(_))),
            "{held:?}"
        );

        // The same answer as for a thing that never existed.
        let words = |error: ReserveError| error.to_string();
        let never = ReservationId::from_uuid(broker.new_uuid());
        let of_never = words(
            reserve::find(broker, &outside, never)
                .await
                .expect_err("never"),
        );
        let of_theirs = words(
            reserve::find(broker, &outside, id)
                .await
                .expect_err("theirs"),
        );
        assert_eq!(
            of_never.replace(&never.to_string(), ""),
            of_theirs.replace(&id.to_string(), "")
        );
        assert_eq!(
            reserve::find(broker, &owner, id).await.expect("its own"),
            own
        );
        assert_eq!(
            store
                .charges()
                .of(stranger)
                .between(own.created_at, end)
                .await
                .expect("none"),
            []
        );
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_14_a_database_of_a_simulation_is_refused_in_production_and_reverse() {
    for_each_database(async |store| {
        use DatabaseMode::{Production, Simulation};
        let dir = tempfile::tempdir().expect("a directory");
        let start_in = async |mode| {
            let config = Config::embedded(dir.path()).expect("the defaults");
            let url = "http://127.0.0.1:9".to_owned();
            start::with_store(
                store.clone(),
                config,
                mode,
                Arc::new(SystemClock),
                Vec::new(),
                url,
            )
            .await
            .map(|_| ())
        };
        start_in(Simulation).await.expect("made as a simulation");
        let refused = start_in(Production).await;
        let mismatch = matches!(
            refused,
            Err(StartError::Store(StoreError::ModeMismatch { .. }))
        );
        assert!(mismatch, "{refused:?}");
        start_in(Simulation).await.expect("it still is one");
    })
    .await;
}

#[test]
fn invariant_14_a_reference_device_is_refused_outside_simulation() {
    let signer = Signer::from_seed(&[7; 32]);
    let commit = |device_kind| Commit {
        protocol: PROTOCOL,
        agent_key: signer.public_key().to_agent_key().expect("a key"),
        host: "10.0.0.1".into(),
        agent: AgentBuild {
            version: "1.0.0".into(),
            sha256: Digest([0; 32]),
        },
        device_kind,
    };
    let expected = expected_node(Gpu::parse("H100-SXM").expect("in the catalogue"), 8);
    let opening = |mode| Opening {
        verification_id: VerificationId::from_uuid(Uuid::from_u128(1)),
        lease_id: LeaseId::from_uuid(Uuid::from_u128(2)),
        mode,
        order: order_for(expected.clone(), 0, Level::Standard, mode),
    };
    let open = |mode, device| Session::open(opening(mode), commit(device), [1; 32]).map(|_| ());
    let refused = open(Mode::Real, DeviceKind::Reference);
    assert!(
        matches!(refused, Err(StepError::SimulatedDevice)),
        "{refused:?}"
    );
    open(Mode::Simulation, DeviceKind::Reference).expect("that is what it is for");
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_14_no_attestation_of_a_simulation_proves_real_hardware() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(training(8)).await;
        let lease = scene.leases(id).await.remove(0);
        let all = store.verifications().across_tenants();
        let kept = all
            .attestations_of(lease.id)
            .await
            .expect("attestations")
            .remove(0);
        assert!(kept.verdict.is_pass() && kept.simulated);

        let signer = Signer::from_seed(&scene.broker().keys().attestation().signing().to_bytes());
        let key = signer.public_key();
        let attestation = verify_attestation(&kept.jws, &key).expect("our signature");
        assert!(attestation.verdict.is_pass() && !attestation.proves_real_hardware());
        let header: Value = {
            let part = kept.jws.split('.').next().expect("a header");
            let bytes = URL_SAFE_NO_PAD.decode(part).expect("base64url");
            serde_json::from_slice(&bytes).expect("JSON")
        };
        assert_eq!(header["typ"], "simulated-attestation+jws");
        // Not even with our own signature under it.
        let real = Header::new(DocumentType::Attestation, attestation.verification_id, None);
        let dressed_up = signer.sign(&real, &attestation).expect("signed");
        assert!(verify_attestation(&dressed_up, &key).is_err());
        scene.release_and_close(id).await;
        scene.close().await;
    })
    .await;
}
