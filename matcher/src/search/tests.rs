//! The search as a whole: kinds, reasons, ranks.
