/*
 * pd.h - prefill and decode on different workers: which pair, and what becomes of the transfer.
 *
 * Where workers have roles (`role`), a strategy's costs say for each prompt whether one worker
 * serves it whole, or one prefills it and another decodes (routing/split.h). With pd.whole a worker
 * whose role is to prefill can serve it whole, too; admission then compares the best plans of all
 * workers, and `split` those of a fleet with room. Where two workers have it:
 *
 *	split      steps/split.c     both workers are chosen, from the same costs
 *	prefiller  steps/prefiller.c the strategy hears of the prefiller
 *	lease      steps/lease.c     the decoder's place is taken
 *	prefill    steps/prefill.c   the leg to the prefiller (leg.h); the request waits for it
 *	           "                 its parameters go into the body for the decoder (openai/legs.h)
 *	head, connect                as with any request: nothing waits between the legs
 *
 * The prefiller holds its KV for a lease. So that a decoder never reads blocks that were given to
 * others:
 *
 *  - parameters are sent once: a decoder that got a byte of them may have pulled, so whatever
 *    follows its failure is prefilled again;
 *  - once half of the lease has passed, they are not used any more;
 *  - a decoder that has given no token by then is left if its engine or the prefiller's does not move;
 *  - a pair whose prefiller has another engine id than at its last transfer does one transfer at a
 *    time, until one has worked.
 *
 * That is for transfers that use up what was prefilled, as all but those by a shared storage do
 * (transfer.h). Where both workers are asked at once, the leg and the decoder's attempt go on
 * together, and its failure is that attempt's. With llm-d's sidecar no leg is asked: it is booked
 * as long as the decoder is waited for.
 *
 * A failed leg, and a decoder that refuses, end in the decoder serving the request whole
 * (pd.fallback). Each case is counted by its name.
 *
 * Threads: those of the exchange's loop; struct kvw_pd_shared belongs to all loops.
 */
#ifndef KVW_PD_H
#define KVW_PD_H

#include "admin/metrics.h"
#include "openai/legs.h"
#include "proxy/exchange.h"
#include "routing/split.h"

struct kvw_fleet_table;

/* The result of a leg in words. */
const char *kvw_pd_leg_why(enum kvw_pd_leg outcome);

/* NULL: out of memory. */
struct kvw_pd_shared *kvw_pd_shared_create(void);
void kvw_pd_shared_destroy(struct kvw_pd_shared *shared); /* NULL is allowed */
/* The learned times of the group's transfers; index SIZE_MAX: those of models without groups. */
struct kvw_transfer *kvw_pd_transfer(struct kvw_pd_shared *shared, size_t group);

/* The workers' roles: marks those that prefill, and leaves whole requests to those that decode, as
 * long as any is usable, unless pd.whole lets prefillers have this request (kvw_pd_strays). */
void kvw_pd_keep(const struct kvw_exchange *x, struct kvw_fleet_table *table);
/* Whether workers of role prefill may serve the whole request though others of the set decode. The
 * strategy does not know that the request costs a second more there, so the step `split` chooses. */
bool kvw_pd_strays(const struct kvw_candidates *set);
/* If kvw_pd_strays, puts the price of each worker's best plan into the strategy's costs. */
void kvw_pd_price(struct kvw_exchange *x, const struct kvw_candidates *set,
	const struct kvw_decision *decision, struct kvw_cost *costs);
/* If kvw_pd_strays, leaves the whole request to the workers that decode. The set's items are the
 * loop's candidates. */
void kvw_pd_leave(struct kvw_exchange *x, struct kvw_candidates *set);
/* Whether any worker has a role. */
bool kvw_pd_has_roles(const struct kvw_exchange *x);

/* Returns whether the prompt must be read for it, where the strategy does not: its length
 * decides. */
bool kvw_pd_reads(const struct kvw_exchange *x);
/* Returns whether the strategy's costs choose the decoder, too; else its own choice stands. */
bool kvw_pd_chooses(const struct kvw_exchange *x);

/* Before a worker is chosen: forgets what the last attempt has used up. True: a pair is to be
 * looked for, and x->pd is there. on_lease: of its timer. */
bool kvw_pd_begin(struct kvw_exchange *x, kvw_timer_fn on_lease);
/* The request goes to other workers than those of its group so far: what was prefilled for them is
 * not used. */
void kvw_pd_forget(struct kvw_exchange *x);
/* Looks for a pair with that decoder (an index of the set, or KVW_SPLIT_ANY), and plans it if it
 * costs less than one worker. *found: the prices, for explanations. */
bool kvw_pd_plan(struct kvw_exchange *x, const struct kvw_candidates *set, size_t decoder,
	struct kvw_split *found);
/* The strategy picks that worker of the set, whatever else it would. KVW_ENOWORKER. */
enum kvw_err kvw_pd_pick(struct kvw_exchange *x, struct kvw_candidates *set, uint32_t id,
	struct kvw_decision *out) KVW_MUST_CHECK;

/* --- the leg (leg.h) --- */
/* Returns by when the leg must have ended: with pd.fallback half of the time for the first token is
 * left then, so that the decoder can serve the request whole. Not after now: no time is left. */
int64_t kvw_pd_leg_until_ns(const struct kvw_exchange *x);
/* A leg begins: what the last one has left is forgotten, and leg_time is set. False: it must not
 * begin, and the decoder gets the request whole, which is counted. */
bool kvw_pd_leg_begins(struct kvw_exchange *x);
/* Reads the client's body once more, as it is now, for both legs (x->pd->plain). False: no memory. */
bool kvw_pd_read_body(struct kvw_exchange *x) KVW_MUST_CHECK;
/* No leg follows: frees the copy of the body, if there is one and nothing is still sent from it. */
void kvw_pd_drop_sent(struct kvw_exchange *x);
/* Takes what the decoder needs from the prefiller's answer. False: it is not there, or there is no
 * memory. */
bool kvw_pd_take_answer(struct kvw_exchange *x, struct kvw_slice answer) KVW_MUST_CHECK;
/* Copies the parameters of the prefiller's answer, for both NIXL connectors. False: no memory. */
bool kvw_pd_take_params(struct kvw_exchange *x, const struct kvw_leg_params *params) KVW_MUST_CHECK;
/* Notes how the leg ended, and so whether the decoder can have the KV, gets the request whole, or a
 * new pair is looked for. status: of the prefiller's answer; 0: none. */
void kvw_pd_leg_ended(struct kvw_exchange *x, enum kvw_pd_leg outcome, int status);

/* --- the decoder --- */
/* Gives the decoder what its transfer needs, if that may be used now. */
void kvw_pd_hand_over(struct kvw_exchange *x);
/* For an attempt with a body of its own (kvw_pd_body). True: half of the lease has passed before
 * the decoder was sent a byte; noted as the attempt's failure, after which the prompt is prefilled
 * again. */
bool kvw_pd_too_late(struct kvw_exchange *x);
/* The decoder was sent its first bytes. */
void kvw_pd_handed(struct kvw_exchange *x);
/* The decoder's first token came. */
void kvw_pd_first_token(struct kvw_exchange *x);
/* The decoder answers an error, or its stream begins with one. True: noted as the attempt's
 * failure, after which a decoder gets the request whole. False: it was handed nothing that can be
 * had only once. */
bool kvw_pd_refused(struct kvw_exchange *x, const char *why);
/* Returns whether the last leg's prefiller is up and moves. */
bool kvw_pd_prefiller_works(const struct kvw_exchange *x);
/* Half of the lease has passed: true if the decoder is left, which is noted. */
bool kvw_pd_lease_passed(struct kvw_exchange *x);
/* Ends the leg under way, if there is one, because the decoder's attempt has ended. */
void kvw_pd_attempt_ended(struct kvw_exchange *x);
/* The exchange has ended: frees what x->pd holds. x->pd itself is freed with the exchange. */
void kvw_pd_end(struct kvw_exchange *x);
/* Fills the record's members about the leg, for metrics and log. */
void kvw_pd_record(const struct kvw_parted *pd, struct kvw_request_record *record);

/* Returns whether the present attempt uses up what was prefilled, so that no second request could
 * have it. */
bool kvw_pd_uses_up(const struct kvw_exchange *x);

/* Returns whether the present attempt's decoder has, or is to get, what was prefilled. */
static inline bool kvw_pd_hands(const struct kvw_exchange *x)
{
	return x->pd != NULL &&
	       (x->pd->body.count > 0 || x->pd->given || x->pd->handed_ns != 0);
}

/* x->pd, if it has the body that the present attempt sends. NULL: the client's body is sent. */
static inline struct kvw_parted *kvw_pd_body(const struct kvw_exchange *x)
{
	return x->pd != NULL && x->pd->body.count > 0 ? x->pd : NULL;
}

/* Whether a leg was begun for the request. */
static inline bool kvw_pd_has_leg(const struct kvw_exchange *x)
{
	return x->pd != NULL && x->pd->legs > 0;
}

/* How long its last leg took; 0: it had none. */
static inline int64_t kvw_pd_prefill_ns(const struct kvw_exchange *x)
{
	return x->pd != NULL ? x->pd->prefill_ns : 0;
}

#endif
