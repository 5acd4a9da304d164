//! The two ways to tenants' rows: one tenant's, or explicitly everyone's.

/// Makes a noun with the handles behind `.of(tenant)` and `.across_tenants()`.
macro_rules! tenant_scoped {
    ($noun:ident, $method:ident, $of:ident, $what:literal) => {
        tenant_scoped!(@noun $noun, $method, $what);
        tenant_scoped!(@of $noun, $of, $what);
    };
    ($noun:ident, $method:ident, $of:ident, $all:ident, $what:literal) => {
        tenant_scoped!(@noun $noun, $method, $what);
        tenant_scoped!(@of $noun, $of, $what);

        #[doc = concat!("Everyone's ", $what, ".")]
        #[derive(Debug, Clone, Copy)]
        pub struct $all<'a> {
            pub(crate) store: &'a crate::Store,
        }

        impl<'a> $noun<'a> {
            #[doc = concat!("Everyone's ", $what, ": for the service itself and its operator.")]
            #[must_use]
            pub fn across_tenants(self) -> $all<'a> {
                $all { store: self.store }
            }
        }
    };
    (@noun $noun:ident, $method:ident, $what:literal) => {
        #[doc = concat!("The ", $what, "; say whose.")]
        #[derive(Debug, Clone, Copy)]
        pub struct $noun<'a> {
            pub(crate) store: &'a crate::Store,
        }

        impl crate::Store {
            #[doc = concat!("The ", $what, "; say whose.")]
            #[must_use]
            pub fn $method(&self) -> $noun<'_> {
                $noun { store: self }
            }
        }
    };
    (@of $noun:ident, $of:ident, $what:literal) => {
        #[doc = concat!("One tenant's ", $what, ".")]
        #[derive(Debug, Clone, Copy)]
        pub struct $of<'a> {
            pub(crate) store: &'a crate::Store,
            pub(crate) tenant: market::ids::TenantId,
        }

        impl<'a> $noun<'a> {
            #[doc = concat!("The ", $what, " of this tenant.")]
            #[must_use]
            pub fn of(self, tenant: market::ids::TenantId) -> $of<'a> {
                $of { store: self.store, tenant }
            }
        }
    };
}

/// Makes a noun that belongs to the service, not to a tenant.
macro_rules! service_wide {
    ($noun:ident, $method:ident, $what:literal) => {
        #[doc = concat!("The ", $what, ".")]
        #[derive(Debug, Clone, Copy)]
        pub struct $noun<'a> {
            pub(crate) store: &'a crate::Store,
        }

        impl crate::Store {
            #[doc = concat!("The ", $what, ".")]
            #[must_use]
            pub fn $method(&self) -> $noun<'_> {
                $noun { store: self }
            }
        }
    };
}

pub(crate) use {service_wide, tenant_scoped};
