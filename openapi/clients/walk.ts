// Walks one reservation by the generated types: from a demand to a cost report.
import createClient from "openapi-fetch";
import type { components, paths } from "./broker.js";

declare const process: { argv: string[] };
type Reservation = components["schemas"]["ReservationView"];

const [url, key] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${key}` } });
const once = (name: string) => ({ "Idempotency-Key": `walk-ts-${name}` });

/** The data of an answer, which is no problem document and no plain text. */
function good<T>(answer: { data?: T; error?: unknown; response: Response }): Exclude<T, string> {
  if (answer.data === undefined || typeof answer.data === "string") {
    throw new Error(`${answer.response.status}: ${JSON.stringify(answer.error)}`);
  }
  return answer.data as Exclude<T, string>;
}

/** Looks each second until the reservation is in the state. */
async function until(id: string, state: Reservation["state"]): Promise<void> {
  for (let second = 0; second < 120; second += 1) {
    const now = good(await api.GET("/v1/reservations/{id}", { params: { path: { id } } }));
    if (now.state === state) return;
    if (now.state === "closed") throw new Error(`closed: ${JSON.stringify(now)}`);
    await new Promise((wake) => setTimeout(wake, 1000));
  }
  throw new Error(`${id} is not ${state} after two minutes`);
}

// It shows at once that a machine has ended; others prove it by two lists, minutes apart.
const policy = { allow_providers: ["lambda"] };
const demand: components["schemas"]["Demand"] = { kind: "gpus", gpu: "H100-SXM", count: 8, policy };
const plan = good(await api.POST("/v1/plans", { body: demand }));
const quote = good(
  await api.POST("/v1/quotes", { body: { plan_id: plan.id, candidate: plan.candidates[0].rank } }),
);
if ("quotes" in quote) throw new Error("a candidate has one quote");
const held = good(
  await api.POST("/v1/reservations", {
    params: { header: once("place") },
    body: { quote_id: quote.id, auto_confirm: true },
  }),
);
if ("reservations" in held) throw new Error("a quote makes one reservation");
const path = { id: held.id };
await until(held.id, "active");
const access = good(await api.GET("/v1/reservations/{id}/access", { params: { path } }));
if (access.nodes[0].gpus !== 8) throw new Error(JSON.stringify(access));
await new Promise((wake) => setTimeout(wake, 3000)); // something to be charged for
good(
  await api.POST("/v1/reservations/{id}/release", { params: { path, header: once("release") } }),
);
await until(held.id, "closed");
const query = { group_by: "provider,gpu" };
const report = good(await api.GET("/v1/reports/costs", { params: { query } }));
if (Number(report.total_usd) <= 0) throw new Error(JSON.stringify(report));
console.log(`walk.ts: ${held.id} walked from plan to report, ${report.total_usd} USD`);
