use market::identity::{Projects, ResourceFamily, Role, Scope};
use market::ids::{ApiKeyId, SshKeyId};
use store::api_keys::{KEPT_WHEN_OVER, NewApiKey, SuccessorKey};
use store::fixture::for_each_database;
use store::signing_keys::{KeyPurpose, SigningKey};
use store::ssh_keys::NewSshKey;
use store::{Conflict, StoreError};
use uuid::Uuid;

use crate::support::{at, tenant};

fn api_key(hash: &str) -> NewApiKey {
    NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "laptop".to_owned(),
        role: Role::Member,
        scopes: [(ResourceFamily::Reservations, Scope::Write)].into(),
        prefix: "gpb_abcd".to_owned(),
        hash: hash.to_owned(),
        projects: Projects::All,
        provider: None,
        expires_at: Some(at(100)),
        created_at: at(0),
        made_by: None,
    }
}

#[tokio::test]
async fn an_api_key_is_found_by_its_hash_until_it_is_revoked_or_expires() {
    for_each_database(async |store| {
        let (owner, _) = tenant(store, "owner").await;
        let (other, _) = tenant(store, "other").await;
        let keys = store.api_keys();
        let key = keys
            .of(owner)
            .insert(api_key("abc"), None)
            .await
            .expect("kept");
        let again = keys.of(other).insert(api_key("abc"), None).await;
        assert!(
            matches!(again, Err(StoreError::Conflict(Conflict::Exists { .. }))),
            "{again:?}"
        );
        let found = keys
            .across_tenants()
            .find_by_hash("abc")
            .await
            .expect("reads");
        assert_eq!(found.as_ref(), Some(&key));
        assert_eq!((key.tenant_id, key.role), (owner, Role::Member));
        assert!(key.is_usable(at(99)) && !key.is_usable(at(100)));
        assert_eq!(
            keys.across_tenants()
                .find_by_hash("xyz")
                .await
                .expect("reads"),
            None
        );
        keys.across_tenants()
            .touch(key.id, at(7))
            .await
            .expect("noted");
        let foreign = keys.of(other).revoke(key.id, at(8), None).await;
        assert!(
            matches!(foreign, Err(StoreError::NotFound { .. })),
            "{foreign:?}"
        );
        keys.of(owner)
            .revoke(key.id, at(9), None)
            .await
            .expect("revoked");
        keys.of(owner)
            .revoke(key.id, at(10), None)
            .await
            .expect("a second time is fine");
        let found = keys
            .across_tenants()
            .find(key.id)
            .await
            .expect("reads")
            .expect("kept");
        assert_eq!(
            (found.last_used_at, found.revoked_at),
            (Some(at(7)), Some(at(9)))
        );
        assert!(!found.is_usable(at(10)));
        assert_eq!(keys.of(owner).list().await.expect("reads").len(), 1);
        assert_eq!(keys.of(other).list().await.expect("reads"), []);
    })
    .await;
}

#[tokio::test]
async fn a_key_is_followed_by_one_of_the_same_principal_and_lives_on_for_a_while() {
    for_each_database(async |store| {
        let (owner, _) = tenant(store, "owner").await;
        let (other, _) = tenant(store, "other").await;
        let keys = store.api_keys();
        let old = keys
            .of(owner)
            .insert(api_key("abc"), None)
            .await
            .expect("kept");
        let next = |hash: &str| SuccessorKey {
            id: ApiKeyId::from_uuid(Uuid::now_v7()),
            prefix: "gpb_next".to_owned(),
            hash: hash.to_owned(),
            expires_at: None,
            old_until: at(50),
        };
        let foreign = keys.of(other).rotate(old.id, next("x"), at(9), None).await;
        assert!(
            matches!(foreign, Err(StoreError::NotFound { .. })),
            "{foreign:?}"
        );
        let new = keys
            .of(owner)
            .rotate(old.id, next("def"), at(10), None)
            .await
            .expect("rotated");
        assert_eq!(
            (new.principal, &new.name, new.role, &new.scopes),
            (old.principal, &old.name, old.role, &old.scopes)
        );
        let all = keys.across_tenants();
        let before = all.find(old.id).await.expect("reads").expect("kept");
        assert_eq!(
            (before.expires_at, before.replaced_by),
            (Some(at(50)), Some(new.id))
        );
        assert!(before.is_usable(at(49)) && !before.is_usable(at(50)));
        let found = all.find_by_hash("def").await.expect("reads");
        assert_eq!(found, Some(new));
        let again = keys
            .of(owner)
            .rotate(old.id, next("ghi"), at(11), None)
            .await;
        assert!(
            matches!(again, Err(StoreError::Conflict(Conflict::KeyNotActive))),
            "{again:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_tenant_has_each_ssh_key_once_and_forgets_only_its_own() {
    for_each_database(async |store| {
        let (owner, _) = tenant(store, "owner").await;
        let (other, _) = tenant(store, "other").await;
        let new = || NewSshKey {
            id: SshKeyId::from_uuid(Uuid::now_v7()),
            name: "laptop".to_owned(),
            public_key: "ssh-ed25519 AAAA".to_owned(),
            fingerprint: "SHA256:abc".to_owned(),
        };
        let keys = store.ssh_keys();
        let key = keys.of(owner).add(new(), at(0), None).await.expect("kept");
        let again = keys.of(owner).add(new(), at(1), None).await;
        assert!(
            matches!(again, Err(StoreError::Conflict(Conflict::Exists { .. }))),
            "{again:?}"
        );
        keys.of(other)
            .add(new(), at(1), None)
            .await
            .expect("another tenant may have it");
        let foreign = keys.of(other).delete(key.id, None).await;
        assert!(
            matches!(foreign, Err(StoreError::NotFound { .. })),
            "{foreign:?}"
        );
        assert_eq!(keys.of(other).find(key.id).await.expect("reads"), None);
        assert_eq!(
            keys.of(owner).find(key.id).await.expect("reads").as_ref(),
            Some(&key)
        );
        keys.of(owner)
            .delete(key.id, None)
            .await
            .expect("forgotten");
        assert_eq!(keys.of(owner).list().await.expect("reads"), []);
    })
    .await;
}

#[tokio::test]
async fn signing_keys_are_listed_by_purpose_from_the_oldest() {
    for_each_database(async |store| {
        let key = |kid: &str, purpose, seconds| SigningKey {
            kid: kid.to_owned(),
            purpose,
            sealed_private: vec![0, 255, 7],
            public: vec![1, 2],
            created_at: at(seconds),
            retired_at: None,
        };
        let new = key("new", KeyPurpose::Token, 9);
        let old = key("old", KeyPurpose::Token, 1);
        let attests = key("att", KeyPurpose::Attestation, 5);
        for one in [&new, &old, &attests, &old] {
            store
                .signing_keys()
                .insert(one.clone())
                .await
                .expect("kept");
        }
        let tokens = store
            .signing_keys()
            .list(KeyPurpose::Token)
            .await
            .expect("reads");
        assert_eq!(tokens, [old, new]);
        let shown = format!("{:?}", tokens[0]);
        assert!(shown.contains("***") && !shown.contains("255"), "{shown}");
    })
    .await;
}

#[tokio::test]
async fn a_tenant_keeps_so_many_keys_and_no_more() {
    for_each_database(async |store| {
        let (owner, _) = tenant(store, "owner").await;
        let (other, _) = tenant(store, "other").await;
        let of = |tenant| store.ssh_keys().of(tenant);
        let new = |number: u32| NewSshKey {
            id: SshKeyId::from_uuid(Uuid::now_v7()),
            name: format!("laptop {number}"),
            public_key: format!("ssh-ed25519 AAAA{number}"),
            fingerprint: format!("SHA256:{number}"),
        };
        for number in 0..100 {
            of(owner).add(new(number), at(0), None).await.expect("kept");
        }
        let refused = of(owner).add(new(100), at(1), None).await;
        let refused = refused.expect_err("as many as there may be").to_string();
        assert!(refused.contains("may have 100 SSH keys"), "{refused}");
        of(other)
            .add(new(100), at(1), None)
            .await
            .expect("another's");
        let first = of(owner).list().await.expect("reads")[0].id;
        of(owner).delete(first, None).await.expect("deleted");
        of(owner)
            .add(new(101), at(2), None)
            .await
            .expect("room again");
    })
    .await;
}

#[tokio::test]
async fn keys_that_are_over_are_forgotten_beyond_so_many_and_a_rotation_needs_room() {
    for_each_database(async |store| {
        let (owner, _) = tenant(store, "owner").await;
        let (other, _) = tenant(store, "other").await;
        let keys = store.api_keys().of(owner);
        let theirs = api_key("theirs");
        let of_other = store.api_keys().of(other);
        of_other.insert(theirs.clone(), None).await.expect("kept");
        of_other.revoke(theirs.id, at(1), None).await.expect("over");
        let kept = u32::try_from(KEPT_WHEN_OVER).expect("not many");
        let mut over = Vec::new();
        for number in 0..kept + 3 {
            let new = api_key(&format!("over {number}"));
            over.push(new.id);
            keys.insert(new, None).await.expect("kept");
            let last = *over.last().expect("one");
            keys.revoke(last, at(1), None).await.expect("over");
        }
        let good = api_key("good");
        keys.insert(good.clone(), None).await.expect("kept");
        let listed = keys.list().await.expect("reads");
        let ids: Vec<_> = listed.iter().map(|key| key.id).rev().collect();
        let expected: Vec<_> = over[3..].iter().chain([&good.id]).copied().collect();
        assert_eq!(ids, expected);
        assert_eq!(of_other.list().await.expect("reads").len(), 1);

        let mut last = good.id;
        for number in 1..500 {
            let new = api_key(&format!("good {number}"));
            last = new.id;
            keys.insert(new, None).await.expect("room");
        }
        let next = SuccessorKey {
            id: ApiKeyId::from_uuid(Uuid::now_v7()),
            prefix: "gpb_next".to_owned(),
            hash: "next".to_owned(),
            expires_at: None,
            old_until: at(50),
        };
        let refused = keys.rotate(good.id, next.clone(), at(2), None).await;
        let refused = refused.expect_err("as many as there may be").to_string();
        assert!(refused.contains("500 active API keys"), "{refused}");
        keys.revoke(last, at(2), None).await.expect("over");
        let followed = keys.rotate(good.id, next, at(3), None).await;
        assert_eq!(followed.expect("room again").name, "laptop");
    })
    .await;
}
