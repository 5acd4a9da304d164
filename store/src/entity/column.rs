//! Column types for the market's own types: ids, words, documents and moments.
//!
//! An unreadable value is the database's fault, never a panic: it becomes
//! [`StoreError::Corrupt`](crate::StoreError::Corrupt).

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SubsecRound, Utc};
use sea_orm::sea_query::{ArrayType, Nullable, ValueType, ValueTypeErr};
use sea_orm::{ColIdx, ColumnType, DbErr, QueryResult, TryFromU64, TryGetError, TryGetable, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value that is its own text: ids and accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<T>(pub T);

/// A word of a closed set, as serde writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word<T>(pub T);

/// A JSON document, stored as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Json<T>(pub T);

/// How a column's value becomes text and back.
trait Written: Sized {
    fn write(&self) -> String;
    fn read(text: &str) -> Result<Self, String>;
}

impl<T> Written for Text<T>
where
    T: fmt::Display + FromStr,
    T::Err: fmt::Display,
{
    fn write(&self) -> String {
        self.0.to_string()
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|refusal: T::Err| refusal.to_string())
    }
}

impl<T: Serialize + DeserializeOwned> Written for Word<T> {
    fn write(&self) -> String {
        // Only enums whose variants are words are used here. Any other value would give an empty text, which
        // the column's check refuses.
        match serde_json::to_value(&self.0) {
            Ok(serde_json::Value::String(word)) => word,
            _ => String::new(),
        }
    }

    fn read(text: &str) -> Result<Self, String> {
        serde_json::from_value(serde_json::Value::String(text.to_owned()))
            .map(Self)
            .map_err(|refusal| refusal.to_string())
    }
}

impl<T: Serialize + DeserializeOwned> Written for Json<T> {
    fn write(&self) -> String {
        // The stored documents have string keys and derived implementations, which cannot fail; an empty text
        // would be refused when it is read.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text)
            .map(Self)
            .map_err(|refusal| refusal.to_string())
    }
}

macro_rules! text_column {
    ($type:ident, $($bound:tt)+) => {
        impl<T: $($bound)+> From<$type<T>> for Value
        where
            $type<T>: Written,
        {
            fn from(value: $type<T>) -> Self {
                Self::from(value.write())
            }
        }

        impl<T: $($bound)+> TryGetable for $type<T>
        where
            $type<T>: Written,
        {
            fn try_get_by<I: ColIdx>(row: &QueryResult, column: I) -> Result<Self, TryGetError> {
                let text = String::try_get_by(row, column)?;
                Self::read(&text)
                    .map_err(|refusal| DbErr::Type(format!("{column:?}: {refusal}")).into())
            }
        }

        impl<T: $($bound)+> ValueType for $type<T>
        where
            $type<T>: Written,
        {
            fn try_from(value: Value) -> Result<Self, ValueTypeErr> {
                match value {
                    Value::String(Some(text)) => Self::read(&text).map_err(|_| ValueTypeErr),
                    _ => Err(ValueTypeErr),
                }
            }

            fn type_name() -> String {
                stringify!($type).to_owned()
            }

            fn array_type() -> ArrayType {
                ArrayType::String
            }

            fn column_type() -> ColumnType {
                ColumnType::Text
            }
        }

        impl<T: $($bound)+> Nullable for $type<T>
        where
            $type<T>: Written,
        {
            fn null() -> Value {
                Value::String(None)
            }
        }

        impl<T: $($bound)+> TryFromU64 for $type<T> {
            fn try_from_u64(_: u64) -> Result<Self, DbErr> {
                Err(DbErr::ConvertFromU64(stringify!($type)))
            }
        }
    };
}

text_column!(Text, Clone);
text_column!(Word, Clone);
text_column!(Json, Clone);

/// A moment in whole microseconds, so that both databases return exactly what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(DateTime<Utc>);

impl Moment {
    pub fn at(self) -> DateTime<Utc> {
        self.0
    }
}

impl From<DateTime<Utc>> for Moment {
    fn from(moment: DateTime<Utc>) -> Self {
        Self(moment.trunc_subsecs(6))
    }
}

impl From<Moment> for DateTime<Utc> {
    fn from(moment: Moment) -> Self {
        moment.0
    }
}

impl From<Moment> for Value {
    fn from(moment: Moment) -> Self {
        Self::from(moment.0)
    }
}

impl TryGetable for Moment {
    fn try_get_by<I: ColIdx>(row: &QueryResult, column: I) -> Result<Self, TryGetError> {
        DateTime::<Utc>::try_get_by(row, column).map(Self)
    }
}

impl ValueType for Moment {
    fn try_from(value: Value) -> Result<Self, ValueTypeErr> {
        <DateTime<Utc> as ValueType>::try_from(value).map(Self)
    }

    fn type_name() -> String {
        "Moment".to_owned()
    }

    fn array_type() -> ArrayType {
        ArrayType::ChronoDateTimeUtc
    }

    fn column_type() -> ColumnType {
        ColumnType::TimestampWithTimeZone
    }
}

impl Nullable for Moment {
    fn null() -> Value {
        <DateTime<Utc> as Nullable>::null()
    }
}
