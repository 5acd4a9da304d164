//! A baseline for the matcher: a narrow match as one indexed query of PostgreSQL, for `broker bench match`.
//! The service itself does not use it.

use sea_orm::sqlx::{self, Connection as _, PgConnection, Row as _};

/// An offer in the table of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedOffer {
    /// The GPU's name.
    pub gpu: String,
    /// GPUs of a node; zero for a slice.
    pub gpus: i32,
    /// Whether it is spot.
    pub spot: bool,
    /// Whether it can be sold at all: fresh, and not sold out.
    pub open: bool,
    /// The country's code; empty where none is known.
    pub country: String,
    /// Nodes that are available at most.
    pub stock: i32,
    /// The price of a node for an hour. Units: 1e-8 US dollars.
    pub price_units: i64,
}

/// The question to the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedQuestion {
    /// The GPU's name.
    pub gpu: String,
    /// GPUs of a node.
    pub gpus: i32,
    /// Whether spot is wanted.
    pub spot: bool,
    /// Nodes that are needed.
    pub nodes: i32,
    /// The most that a node may cost. Units: 1e-8 US dollars an hour.
    pub most_units: i64,
    /// The countries to search; anywhere, where none is named.
    pub countries: Vec<String>,
}

/// A temporary table of offers with the index that its question needs, on a connection of its own; it ends
/// with the connection.
#[derive(Debug)]
pub struct IndexedOffers {
    connection: PgConnection,
}

/// How many rows go into one statement.
const CHUNK: usize = 20_000;

impl IndexedOffers {
    /// Creates the table and fills it.
    ///
    /// Errors: the database's.
    pub async fn fill(
        url: &str,
        offers: impl Iterator<Item = IndexedOffer>,
    ) -> Result<Self, sqlx::Error> {
        let mut connection = PgConnection::connect(url).await?;
        // Temporary tables use buffers of their own, which are small by default.
        for statement in [
            "SET temp_buffers = '512MB'",
            "CREATE TEMPORARY TABLE bench_offers (id serial, gpu text, gpus int, spot bool, \
             open bool, country text, stock int, price_units bigint)",
        ] {
            sqlx::query(statement).execute(&mut connection).await?;
        }
        let mut offers = offers.peekable();
        while offers.peek().is_some() {
            let chunk: Vec<_> = offers.by_ref().take(CHUNK).collect();
            insert(&mut connection, &chunk).await?;
        }
        for statement in [
            "CREATE INDEX ON bench_offers (gpu, gpus, spot, price_units) \
             INCLUDE (country, stock, id) WHERE open",
            // Before a vacuum an index-only scan also looks each row up in the table.
            "VACUUM ANALYZE bench_offers",
        ] {
            sqlx::query(statement).execute(&mut connection).await?;
        }
        Ok(Self { connection })
    }

    /// The prices of the ten cheapest, cheapest first. Units: 1e-8 US dollars.
    ///
    /// Errors: the database's.
    pub async fn top_ten(&mut self, asked: &IndexedQuestion) -> Result<Vec<i64>, sqlx::Error> {
        let anywhere = "SELECT id, price_units FROM bench_offers WHERE open AND gpu = $1 \
             AND gpus = $2 AND spot = $3 AND price_units <= $4 AND stock >= $5 \
             ORDER BY price_units LIMIT 10";
        let somewhere = "SELECT id, price_units FROM bench_offers WHERE open AND gpu = $1 \
             AND gpus = $2 AND spot = $3 AND price_units <= $4 AND stock >= $5 \
             AND country = ANY($6) ORDER BY price_units LIMIT 10";
        let question = if asked.countries.is_empty() {
            anywhere
        } else {
            somewhere
        };
        let mut query = sqlx::query(question)
            .bind(&asked.gpu)
            .bind(asked.gpus)
            .bind(asked.spot)
            .bind(asked.most_units)
            .bind(asked.nodes);
        if !asked.countries.is_empty() {
            query = query.bind(&asked.countries);
        }
        let rows = query.fetch_all(&mut self.connection).await?;
        rows.iter().map(|row| row.try_get(1)).collect()
    }
}

async fn insert(connection: &mut PgConnection, chunk: &[IndexedOffer]) -> Result<(), sqlx::Error> {
    fn column<T>(chunk: &[IndexedOffer], of: impl Fn(&IndexedOffer) -> T) -> Vec<T> {
        chunk.iter().map(of).collect()
    }
    sqlx::query(
        "INSERT INTO bench_offers (gpu, gpus, spot, open, country, stock, price_units) \
         SELECT * FROM UNNEST($1::text[], $2::int[], $3::bool[], $4::bool[], $5::text[], \
         $6::int[], $7::bigint[])",
    )
    .bind(column(chunk, |offer| offer.gpu.clone()))
    .bind(column(chunk, |offer| offer.gpus))
    .bind(column(chunk, |offer| offer.spot))
    .bind(column(chunk, |offer| offer.open))
    .bind(column(chunk, |offer| offer.country.clone()))
    .bind(column(chunk, |offer| offer.stock))
    .bind(column(chunk, |offer| offer.price_units))
    .execute(connection)
    .await?;
    Ok(())
}
