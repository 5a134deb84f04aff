/* policy_kvway.h - functions of the policy kvway that an admission calls. */
#ifndef KVB_POLICY_KVWAY_H
#define KVB_POLICY_KVWAY_H
#include "bench/replay/replay_policy.h"
#include "admission/programs.h"
#include "kvway/route.h"

/* Computes how a pick for the job would decide now, and why. costs: of all workers. */
void kvb_kvway_explain(void *self, uint32_t job, int64_t now_ns, struct kvw_cost *costs, struct kvw_decision *out);
/* Makes the next pick, of any job, choose this worker. */
void kvb_kvway_force(void *self, uint32_t worker);
struct kvw_candidates kvb_kvway_candidates(void *self);
/* Returns the decision of the job's last pick. */
const struct kvw_decision *kvb_kvway_decision(void *self, uint32_t job);
/* Returns the load of a worker, and its key. */
struct kvw_load *kvb_kvway_load(void *self, uint32_t worker, uint64_t *key);
/* Returns the data about the program to which the job belongs. */
struct kvw_turn kvb_kvway_turn(void *self, uint32_t job, struct kvw_programs *programs);
/* Returns the tokens of the job's prompt, as far as the router knows them: 0 for a strategy that
 * does not use prompts. */
uint32_t kvb_kvway_tokens(void *self, uint32_t job);

struct kvw_admission;
/* Returns the state that the loops of the router share, for admission kvway. */
struct kvw_admission *kvb_admission_kvway_shared(void *self);
/* Returns kvway_fleet_predicted_over_promised of admission kvway. */
double kvb_admission_kvway_predicted(void *self, double quantile, int64_t now_ns);
/* Returns the number of requests that wait at admission kvway. */
size_t kvb_admission_kvway_waiting(void *self);
#endif
