/* policy_kvway.h - what an admission needs of the policy kvway. */
#ifndef KVB_POLICY_KVWAY_H
#define KVB_POLICY_KVWAY_H
#include "bench/replay/replay_policy.h"
#include "admission/programs.h"
#include "kvway/route.h"

/* What a pick of the job would decide now, and why. costs: of all workers. */
void kvb_kvway_explain(void *self, uint32_t job, int64_t now_ns, struct kvw_cost *costs, struct kvw_decision *out);
/* The next pick of any job takes this worker. */
void kvb_kvway_force(void *self, uint32_t worker);
struct kvw_candidates kvb_kvway_candidates(void *self);
/* Of the job's last pick. */
const struct kvw_decision *kvb_kvway_decision(void *self, uint32_t job);
/* The load and the key of a worker. */
struct kvw_load *kvb_kvway_load(void *self, uint32_t worker, uint64_t *key);
/* What is known of its program. */
struct kvw_turn kvb_kvway_turn(void *self, uint32_t job, struct kvw_programs *programs);
/* Tokens of its prompt, as far as the router knows them: 0 for a strategy that does not ask for prompts. */
uint32_t kvb_kvway_tokens(void *self, uint32_t job);

struct kvw_admission;
/* What the loops of admission kvway's router share. */
struct kvw_admission *kvb_admission_kvway_shared(void *self);
#endif
