//! A tap between the broker and an adapter: it records every call and, at the one that a test names, lets it
//! hang, fails it, or does not pass it on. It can also make the nodes get their agent over SSH, and show a
//! real server in their place.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use adapters::{Adapter, AdapterError, Delivery, Http, NodesPerLease, Profile, Refusal, Release};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::CatalogReading;
use market::order::{Attachment, ClientToken, LeaseOrder, LeaseRef, ProviderLease, ProviderNode};
use tokio::sync::Notify;

/// The subject of a call to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Catalog,
    Request,
    List,
    Find,
    Read,
    Release,
}

/// A call to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) provider: &'static str,
    pub(crate) op: Op,
    /// Its number since the hook was set, from 0.
    pub(crate) number: usize,
}

/// The treatment of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is passed on and answered.
    Forward,
    /// It never leaves us and is never answered.
    HangBefore,
    /// It is passed on, and its answer never arrives.
    HangAfter,
    /// It waits until the test releases it, and is then passed on.
    Wait,
    /// It never leaves us, and an error comes back.
    Fail,
    /// It never leaves us, for our code panics.
    Panic,
    /// It never leaves us, and is refused: sold out.
    Refuse,
    /// A release alone: it never leaves us, and success comes back.
    Swallow,
    /// A reading alone: it never leaves us, and the provider shows no machine.
    Hide,
    /// It never leaves us, and the answer cannot be read.
    Garble,
}

/// The SSH server in the place of every node.
#[derive(Clone)]
pub(crate) struct ServerPlace {
    pub(crate) port: u16,
    pub(crate) user: String,
    /// The file of the keys that it accepts; those of each order are put there.
    pub(crate) authorized_keys: PathBuf,
}

type Hook = Box<dyn FnMut(&Call) -> Fate + Send>;

/// The state that all taps of a scene share.
#[derive(Default)]
pub(crate) struct Line {
    hook: Mutex<Option<Hook>>,
    calls: Mutex<Vec<Call>>,
    scripts: Mutex<Vec<String>>,
    server: Mutex<Option<ServerPlace>>,
    hanging: Notify,
    go_on: Notify,
}

impl Line {
    /// From now on every call meets `hook`; the numbering starts again.
    pub(crate) fn hook(&self, hook: impl FnMut(&Call) -> Fate + Send + 'static) {
        self.calls().clear();
        *self.hook.lock().expect("not poisoned") = Some(Box::new(hook));
    }

    /// From now on every call is passed on.
    pub(crate) fn unhook(&self) {
        self.hook(|_| Fate::Forward);
    }

    /// The calls since the hook was set.
    pub(crate) fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().expect("not poisoned")
    }

    /// The start-up scripts of all orders, in their order.
    pub(crate) fn scripts(&self) -> Vec<String> {
        self.scripts.lock().expect("not poisoned").clone()
    }

    /// From now on this server is in the place of every node of a pushed provider.
    pub(crate) fn stand_in(&self, place: ServerPlace) {
        *self.server.lock().expect("not poisoned") = Some(place);
    }

    fn server(&self) -> Option<ServerPlace> {
        self.server.lock().expect("not poisoned").clone()
    }

    /// Releases the call that waits.
    pub(crate) fn go_on(&self) {
        self.go_on.notify_one();
    }

    /// Waits until a call hangs or waits.
    pub(crate) async fn hangs(&self) {
        self.hanging.notified().await;
    }

    fn meet(&self, provider: &'static str, op: Op) -> Fate {
        let number = self.calls().len();
        let call = Call {
            provider,
            op,
            number,
        };
        self.calls().push(call);
        let mut hook = self.hook.lock().expect("not poisoned");
        hook.as_mut().map_or(Fate::Forward, |hook| hook(&call))
    }

    async fn hang(&self) -> Infallible {
        self.hanging.notify_one();
        std::future::pending().await
    }
}

/// An adapter behind a tap.
pub(crate) struct CallInterceptor {
    inner: &'static dyn Adapter,
    profile: &'static Profile,
    line: Arc<Line>,
}

impl CallInterceptor {
    /// Puts a tap before an adapter.
    pub(crate) fn before(inner: &'static dyn Adapter, line: Arc<Line>) -> &'static dyn Adapter {
        Self::as_if(inner, line, copy(inner.profile()))
    }

    /// As [`Self::before`], and as if the provider rented every node by itself: a gang then takes
    /// as many orders as it has nodes.
    pub(crate) fn node_by_node(
        inner: &'static dyn Adapter,
        line: Arc<Line>,
    ) -> &'static dyn Adapter {
        let profile = Profile {
            nodes_per_lease: NodesPerLease::One,
            ..copy(inner.profile())
        };
        Self::as_if(inner, line, profile)
    }

    /// As [`Self::before`], and as if the provider rented two nodes at most at once.
    pub(crate) fn two_by_two(inner: &'static dyn Adapter, line: Arc<Line>) -> &'static dyn Adapter {
        let profile = Profile {
            nodes_per_lease: NodesPerLease::Rental { max: 2 },
            ..copy(inner.profile())
        };
        Self::as_if(inner, line, profile)
    }

    /// As [`Self::before`], and as if the nodes ran no script.
    pub(crate) fn pushed(inner: &'static dyn Adapter, line: Arc<Line>) -> &'static dyn Adapter {
        let profile = Profile {
            delivery: Delivery::SshPush,
            ..copy(inner.profile())
        };
        Self::as_if(inner, line, profile)
    }

    /// As [`Self::node_by_node`], and as if the nodes ran no script.
    pub(crate) fn pushed_node_by_node(
        inner: &'static dyn Adapter,
        line: Arc<Line>,
    ) -> &'static dyn Adapter {
        let profile = Profile {
            delivery: Delivery::SshPush,
            nodes_per_lease: NodesPerLease::One,
            ..copy(inner.profile())
        };
        Self::as_if(inner, line, profile)
    }

    /// Puts a tap before an adapter that shows this profile; like every adapter it lives as long as
    /// the process.
    fn as_if(
        inner: &'static dyn Adapter,
        line: Arc<Line>,
        profile: Profile,
    ) -> &'static dyn Adapter {
        let profile = Box::leak(Box::new(profile));
        Box::leak(Box::new(Self {
            inner,
            profile,
            line,
        }))
    }

    /// Puts the server in the place of the nodes of a lease.
    fn stand_in(&self, mut lease: ProviderLease) -> ProviderLease {
        if let Some(server) = self.line.server() {
            for node in &mut lease.nodes {
                *node = ProviderNode {
                    host: "127.0.0.1".into(),
                    port: server.port,
                    user: server.user.clone(),
                    private_address: None,
                };
            }
        }
        lease
    }

    async fn pass<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, AdapterError>>,
    ) -> Result<T, AdapterError> {
        self.meet_fate(self.line.meet(self.inner.profile().id, op), call)
            .await
    }

    async fn meet_fate<T>(
        &self,
        fate: Fate,
        call: impl Future<Output = Result<T, AdapterError>>,
    ) -> Result<T, AdapterError> {
        match fate {
            Fate::Forward => call.await,
            Fate::HangBefore => match self.line.hang().await {},
            Fate::HangAfter => {
                drop(call.await);
                match self.line.hang().await {}
            }
            Fate::Wait => {
                self.line.hanging.notify_one();
                self.line.go_on.notified().await;
                call.await
            }
            Fate::Panic => panic!("the tap burst"),
            Fate::Refuse => Err(AdapterError::Refused {
                refusal: Refusal::Capacity,
                status: 400,
                message: "the tap is closed".into(),
            }),
            Fate::Garble => Err(AdapterError::Unreadable {
                method: "GET",
                path: "/cut".into(),
                how: "the tap is dirty".into(),
            }),
            Fate::Fail | Fate::Swallow | Fate::Hide => Err(AdapterError::Unreachable {
                method: "GET",
                path: "/cut".into(),
                how: "the tap is closed".into(),
                source: None,
            }),
        }
    }
}

#[async_trait]
impl Adapter for CallInterceptor {
    fn profile(&self) -> &'static Profile {
        self.profile
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        self.pass(Op::Catalog, self.inner.read_catalog(http, now))
            .await
    }

    async fn request_lease(
        &self,
        http: &Http,
        order: &LeaseOrder,
    ) -> Result<ProviderLease, AdapterError> {
        let scripts = &self.line.scripts;
        let script = order.startup_script.clone();
        scripts.lock().expect("not poisoned").push(script);
        if let Some(server) = self.line.server() {
            let keys = format!("{}\n", order.ssh_public_keys.join("\n"));
            std::fs::write(server.authorized_keys, keys).expect("the keys are let in");
        }
        self.pass(Op::Request, self.inner.request_lease(http, order))
            .await
    }

    async fn list_leases(&self, http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
        match self.line.meet(self.inner.profile().id, Op::List) {
            Fate::Hide => Ok(Vec::new()),
            fate => self.meet_fate(fate, self.inner.list_leases(http)).await,
        }
    }

    async fn find_lease(
        &self,
        http: &Http,
        token: &ClientToken,
    ) -> Result<Option<ProviderLease>, AdapterError> {
        self.pass(Op::Find, self.inner.find_lease(http, token))
            .await
    }

    async fn read_lease(
        &self,
        http: &Http,
        lease: &LeaseRef,
    ) -> Result<Option<ProviderLease>, AdapterError> {
        let lease = match self.line.meet(self.inner.profile().id, Op::Read) {
            Fate::Hide => None,
            fate => {
                self.meet_fate(fate, self.inner.read_lease(http, lease))
                    .await?
            }
        };
        Ok(lease.map(|lease| self.stand_in(lease)))
    }

    async fn release_lease(&self, http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
        let fate = self.line.meet(self.inner.profile().id, Op::Release);
        match fate {
            Fate::Swallow => Ok(Release::Accepted),
            fate => {
                self.meet_fate(fate, self.inner.release_lease(http, lease))
                    .await
            }
        }
    }

    async fn list_attachments(&self, http: &Http) -> Result<Vec<Attachment>, AdapterError> {
        self.inner.list_attachments(http).await
    }

    async fn remove_attachment(
        &self,
        http: &Http,
        attachment: &Attachment,
    ) -> Result<(), AdapterError> {
        self.inner.remove_attachment(http, attachment).await
    }
}

const fn copy(profile: &Profile) -> Profile {
    Profile {
        id: profile.id,
        name: profile.name,
        default_base_url: profile.default_base_url,
        auth: profile.auth,
        credential: profile.credential,
        delivery: profile.delivery,
        nodes_per_lease: profile.nodes_per_lease,
        machines: profile.machines,
        unsupported: profile.unsupported,
        freshness_limit: profile.freshness_limit,
        poll_interval: profile.poll_interval,
        call_spacing: profile.call_spacing,
        order_spacing: profile.order_spacing,
        listing_lag: profile.listing_lag,
    }
}
