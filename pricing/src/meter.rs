//! Usage priced at a frozen rate, by running totals. Booking the charge is in
//! [`crate::postings`].
//!
//! A charge is R(S_k) − R(S_{k−1}): the difference of two rounded totals, not a rounded difference. So
//! splitting an interval does not change the sum, and every total is within half a unit of the exact product.

use market::demand::DemandKind;
use market::ids::{ProjectId, ProviderId, TenantId};
use market::money::{Money, MoneyError, Rate};
use market::tags::{Attribution, Tags};
use market::usage::{Charge, UsageRecord};

use crate::PriceError;

/// The total charged so far for one reservation at one rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningTotal {
    rate: Rate,
    gpu_seconds: i64,
    amount: Money,
}

/// The tenant and the attribution of a charge, as they were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sale {
    /// The tenant that pays.
    pub tenant_id: TenantId,
    /// The project.
    pub project_id: ProjectId,
    /// The provider where it runs.
    pub provider: ProviderId,
    /// The GPU that runs.
    pub gpu: String,
    /// The kind of the demand.
    pub workload: DemandKind,
    /// The tags of the reservation.
    pub tags: Tags,
    /// The fixed fields of the reservation.
    pub attribution: Attribution,
}

impl RunningTotal {
    /// Nothing charged yet.
    #[must_use]
    pub const fn start(rate: Rate) -> Self {
        let currency = rate.money_per_gpu_hour().currency();
        Self {
            rate,
            gpu_seconds: 0,
            amount: Money::zero(currency),
        }
    }

    /// Resumes from a total that the ledger holds.
    ///
    /// Errors: [`PriceError::RunningTotalOff`] when the amount does not match the cost of the quantity at
    /// this rate, [`PriceError::Money`].
    pub fn resume(rate: Rate, gpu_seconds: i64, amount: Money) -> Result<Self, PriceError> {
        let expected = rate.cost_of(gpu_seconds)?;
        if expected != amount {
            return Err(PriceError::RunningTotalOff {
                gpu_seconds,
                expected,
                found: amount,
            });
        }
        Ok(Self {
            rate,
            gpu_seconds,
            amount,
        })
    }

    /// The frozen rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// GPU-seconds charged so far.
    #[must_use]
    pub const fn gpu_seconds(&self) -> i64 {
        self.gpu_seconds
    }

    /// Their cost.
    #[must_use]
    pub const fn amount(&self) -> Money {
        self.amount
    }

    /// Prices one more usage record and advances the total; on an error the total stays.
    ///
    /// Errors: [`PriceError::TimesOutOfOrder`] for a record that ends before it starts, [`PriceError::Money`]
    /// when a sum exceeds 64 bits.
    pub fn charge(&mut self, usage: UsageRecord, sale: Sale) -> Result<Charge, PriceError> {
        if usage.to < usage.from {
            return Err(PriceError::TimesOutOfOrder(
                "the usage ends before it starts",
            ));
        }
        let gpu_seconds = self
            .gpu_seconds
            .checked_add(usage.gpu_seconds())
            .ok_or(MoneyError::Overflow)?;
        let total = self.rate.cost_of(gpu_seconds)?;
        let amount = total
            .units()
            .checked_sub(self.amount.units())
            .ok_or(MoneyError::Overflow)?;
        let amount = Money::from_units(amount, total.currency());
        self.gpu_seconds = gpu_seconds;
        self.amount = total;
        Ok(Charge {
            usage,
            tenant_id: sale.tenant_id,
            project_id: sale.project_id,
            provider: sale.provider,
            gpu: sale.gpu,
            workload: sale.workload,
            rate: self.rate,
            amount,
            tags: sale.tags,
            attribution: sale.attribution,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples::{sale, usage, usd};

    /// Charges intervals of these lengths, one after the other, and sums the charges.
    fn charge_in_slices(rate: Rate, gpus: u32, lengths: &[i64]) -> (i64, RunningTotal) {
        let mut total = RunningTotal::start(rate);
        let mut from = 0;
        let mut sum = 0;
        for length in lengths {
            let charge = total
                .charge(usage(gpus, from, from + length), sale())
                .expect("a charge");
            sum += charge.amount.units();
            from += length;
        }
        (sum, total)
    }

    #[test]
    fn an_hour_of_eight_gpus_costs_eight_times_the_rate() {
        let rate = Rate::per_gpu_hour(usd("2.99"));
        let (sum, total) = charge_in_slices(rate, 8, &[3_600]);
        assert_eq!(Money::usd_units(sum), usd("23.92"));
        assert_eq!(total.gpu_seconds(), 28_800);
    }

    #[test]
    fn a_total_that_the_ledger_holds_wrongly_is_not_taken_up() {
        let rate = Rate::per_gpu_hour(usd("3.60"));
        assert!(RunningTotal::resume(rate, 10, usd("0.01")).is_ok());
        let off = RunningTotal::resume(rate, 10, usd("0.02"));
        assert!(
            matches!(off, Err(PriceError::RunningTotalOff { .. })),
            "{off:?}"
        );
    }

    #[test]
    fn a_refused_record_leaves_the_total_as_it_was() {
        let mut total = RunningTotal::start(Rate::per_gpu_hour(usd("1.00")));
        total.charge(usage(1, 0, 60), sale()).expect("a charge");
        let before = total;
        assert!(matches!(
            total.charge(usage(1, 60, 0), sale()),
            Err(PriceError::TimesOutOfOrder(_))
        ));
        assert_eq!(total, before);
    }

    proptest! {
        // F04
        #[test]
        fn any_slicing_of_an_interval_costs_the_same_to_the_unit(
            rate in 1_i64..100_000_000_000,
            gpus in 1_u32..=64,
            lengths in proptest::collection::vec(0_i64..100_000, 1..60),
        ) {
            let rate = Rate::per_gpu_hour(Money::usd_units(rate));
            let whole = [lengths.iter().sum::<i64>()];
            prop_assert_eq!(
                charge_in_slices(rate, gpus, &lengths),
                charge_in_slices(rate, gpus, &whole)
            );
        }

        #[test]
        fn a_total_is_within_half_a_unit_of_the_exact_product(
            rate in 1_i64..100_000_000_000,
            gpus in 1_u32..=64,
            lengths in proptest::collection::vec(0_i64..100_000, 1..60),
        ) {
            let (sum, _) = charge_in_slices(Rate::per_gpu_hour(Money::usd_units(rate)), gpus, &lengths);
            let seconds: i64 = lengths.iter().sum();
            let exact = i128::from(rate) * i128::from(gpus) * i128::from(seconds);
            prop_assert!(2 * (i128::from(sum) * 3_600 - exact).abs() <= 3_600);
        }

        #[test]
        fn a_total_taken_up_again_goes_on_where_it_stopped(
            rate in 1_i64..100_000_000_000,
            first in 0_i64..100_000,
            second in 0_i64..100_000,
        ) {
            let rate = Rate::per_gpu_hour(Money::usd_units(rate));
            let (sum, total) = charge_in_slices(rate, 3, &[first]);
            let mut again = RunningTotal::resume(rate, total.gpu_seconds(), Money::usd_units(sum)).expect("agrees");
            let charge = again.charge(usage(3, first, first + second), sale()).expect("a charge");
            let (both, _) = charge_in_slices(rate, 3, &[first + second]);
            prop_assert_eq!(sum + charge.amount.units(), both);
        }
    }
}
