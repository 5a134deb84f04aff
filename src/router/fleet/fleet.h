/*
 * fleet.h - the workers, their states, and the candidates for picks.
 *
 * The fleet is a table of KVW_MAX_WORKERS slots (worker.h); workers come and go while requests run.
 * A changing property of a worker is either an atomic in it, written by the control thread and by
 * passive failure counting, or part of an immutable view: the model table. The control thread
 * publishes a new view, and frees the old one when every loop has ended the turn in which it could
 * read it (epoch.h).
 *
 * A worker leaves in this order: it is drained (no new requests; members.h decides for how long),
 * removed (GONE: no view lists it; its running requests are moved or cut), and released by every
 * loop, the feeds and all other holders. Then kvw_fleet_reap purges all knowledge of it, and its
 * slot is FREE for another worker, with a new generation.
 *
 * Threads: the control thread alone calls the functions below "control thread"; loops call the
 * others, and both report lost caches.
 */
#ifndef KVW_FLEET_H
#define KVW_FLEET_H

#include <stdatomic.h>

#include "config/config.h"
#include "kvway/route.h"
#include "fleet/foreign.h"
#include "fleet/model_card.h"
#include "fleet/ratio.h"
#include "fleet/settings.h"
#include "fleet/worker.h"
#include "tls/watch.h"

struct kvw_model_names; /* scrape.h */
struct kvw_wakes;       /* wake/wakes.h */

#define KVW_MODEL_WORDS (KVW_MAX_WORKERS / 64)

/* Models with lower indices stay as long as the fleet, since metrics name them. Of the others, at
 * most KVW_MODELS_UNLISTED are kept that no worker lists and no request uses; further ones are
 * freed and their indices reused. */
#define KVW_MODELS_KEPT     256
#define KVW_MODELS_UNLISTED 1024

/* Facts learned about a model. The entry stays while a view that loops may read has it, and while
 * it is held. */
struct kvw_model {
	char *name;
	uint32_t index;                     /* index for metric labels */
	uint32_t views; /* number of views that have it; only the control thread uses this */
	bool listed; /* the present view has it; only the control thread uses this */
	uint64_t serial;                    /* unique */
	_Atomic uint32_t holds;             /* number of holds (kvw_model_hold) */
	/* The model is a LoRA adapter, by the list of a worker that serves it. */
	_Atomic bool adapter;
	_Atomic uint32_t units_per_token_q16; /* learned bytes per token, 16.16 fixed point */
};

struct kvw_model_entry {
	struct kvw_model *model;
	uint64_t workers[KVW_MODEL_WORDS]; /* bit = worker id */
	/* merged from the workers that serve it; the view owns its texts */
	struct kvw_model_card card;
};

/* The models and their workers. Immutable. A loop borrows it until the end of its turn. */
struct kvw_fleet_view {
	struct kvw_model_entry *models; /* ascending by name */
	size_t model_count;
	/* the models of every worker are known, so a request for another model gets 404 */
	bool all_known;
};

/* The TLS context for workers whose certificates are verified by the same authorities. */
struct kvw_trust {
	struct kvw_tls *tls; /* owned */
	char *ca_file;       /* owned; "": the authorities that the system trusts */
	uint32_t users;      /* number of workers that use it, leaving ones included */
	struct kvw_trust *next;
};

/* Bytes per token of a model, learned by a former process of kvway. */
struct kvw_remembered_model {
	char *name; /* owned */
	uint32_t units_per_token_q16;
};

struct kvw_fleet {
	/* Workers by slot; [count] slots are in use, in any state. */
	struct kvw_worker *workers[KVW_MAX_WORKERS];
	_Atomic size_t count;            /* slots that have been used; only grows */
	_Atomic size_t live;             /* workers that are LIVE */
	_Atomic uint32_t roles;          /* LIVE workers of a role other than both */
	_Atomic uint32_t leaving;        /* workers that are GONE and not FREE yet */
	size_t loops;
	const struct kvw_fleet_view *_Atomic view;
	const struct kvw_config *_Atomic config; /* in force */
	struct kvw_epochs *epochs;       /* records when loops have ended their turns */
	/* the strategy in force, which is informed of lost caches; NULL: none */
	struct kvw_strategy *_Atomic strategy;
	/* configuration and strategy in force, with a count of users; owned; NULL: owned by
	 * others */
	struct kvw_settings *_Atomic settings;
	/* Replaced settings that are to be destroyed; used only by the control thread. */
	struct kvw_settings *replaced;
	/* TLS contexts for workers; owned, used only by the control thread. An entry is freed with
	 * the slot of its last worker, except upstream.tls.ca_file's. */
	struct kvw_trust *trusts;
	/* Certificates of all listening addresses, renewed by the control thread. */
	struct kvw_tls_watch certificates;
	/* Called to drop all knowledge of a slot's worker; NULL: nothing to call. */
	void (*freed)(void *arg, uint32_t slot);
	void *freed_arg;
	struct kvw_ejections ejections;
	/* learned tokens per byte, by the beginnings of prompts; owned */
	struct kvw_ratios *ratios;
	/* models by index; NULL: a free index. Only the control thread uses this */
	struct kvw_model **models;
	size_t model_total;              /* number of indices that have been used */
	/* ratios of models that no worker has served yet; owned */
	struct kvw_remembered_model *remembered;
	size_t remembered_count;
	struct kvw_wakes *wakes;         /* models that may be woken; owned */
	struct kvw_load_board *loads;    /* loads of all workers, by id; owned */
	/* Workers that are DOWN, stalled or asleep; a worker counts once for each of these
	 * states. */
	_Atomic uint32_t down;
	_Atomic uint32_t shortest_len; /* the least max_model_len of any worker; 0: none is known */
	/* Until this time a limit that was learned from a worker's refusals may be in force; 0:
	 * none was learned. */
	_Atomic int64_t refused_until_ns;
	_Atomic uint64_t changes;        /* grows after each change that candidates show; > 0 */
};

/* Candidates that a loop caches between requests. */
struct kvw_fleet_table {
	struct kvw_candidate *items; /* [KVW_MAX_WORKERS], owned by the loop */
	size_t count;
	uint64_t version; /* version for kvw_candidates; 0: fill the items again next time */
};

/* Creates a fleet with the workers of the configuration. KVW_EINVAL: an invalid URL, or
 * upstream.tls, which a worker with https needs, cannot be loaded; `errors` has the cause. */
enum kvw_err kvw_fleet_create(const struct kvw_config *config, size_t loops, FILE *errors,
	struct kvw_fleet **out) KVW_MUST_CHECK;
/* Creates a read-only fleet: it resolves no name, loads no certificate, and cannot connect to
 * workers. */
enum kvw_err kvw_fleet_create_offline(
	const struct kvw_config *config, struct kvw_fleet **out) KVW_MUST_CHECK;
void kvw_fleet_destroy(struct kvw_fleet *fleet); /* NULL is allowed */

/* --- any thread --- */
/* Returns the worker in this slot, below fleet->count; NULL: none. */
static inline struct kvw_worker *kvw_fleet_worker(const struct kvw_fleet *fleet, size_t slot)
{
	struct kvw_worker *worker = fleet->workers[slot];

	return kvw_worker_life(worker) == KVW_WORKER_LIVE ? worker : NULL;
}

size_t kvw_fleet_usable_count(const struct kvw_fleet *fleet);

/* Keeps a model that an event loop found in its turn's view beyond the turn. NULL is allowed. */
static inline void kvw_model_hold(struct kvw_model *model)
{
	if (model != NULL && model->index >= KVW_MODELS_KEPT)
		atomic_fetch_add_explicit(&model->holds, 1, memory_order_relaxed);
}

static inline void kvw_model_let_go(struct kvw_model *model)
{
	if (model != NULL && model->index >= KVW_MODELS_KEPT)
		atomic_fetch_sub_explicit(&model->holds, 1, memory_order_release);
}

/* Fills the candidates for a model (len 0: any model), with loads from fleet->loads. items has room
 * for fleet->count, which may grow: KVW_MAX_WORKERS. Sets *known: some worker lists the model, or
 * none was requested. Only workers that serve the model are included. *entry: the model; may become
 * NULL. If all workers of the model are down or ejected, the ejected ones become usable, and if all
 * are down, those that are only late: a doubtful answer is better than none. */
size_t kvw_fleet_candidates(const struct kvw_fleet *fleet, struct kvw_slice model,
	struct kvw_candidate *items, bool *known, struct kvw_model **entry);

/* Returns whether the worker's present list names the model. */
bool kvw_fleet_lists(
	const struct kvw_fleet *fleet, const struct kvw_worker *worker, struct kvw_slice model);

/* Returns the model for requests that name none: the only model that is not an adapter of another.
 * NULL: there are several, or none is known. */
struct kvw_model *kvw_fleet_meant_model(const struct kvw_fleet *fleet);
/* Returns whether no model, adapters aside, is served by all workers whose models are known. */
bool kvw_fleet_divided(const struct kvw_fleet *fleet);

/* If no candidate is usable: makes those usable that are ejected or suspected, but not down; if
 * there are none either, those that are down only because their probes were late. */
void kvw_fleet_use_ejected(
	const struct kvw_fleet *fleet, struct kvw_candidate *items, size_t count);

/* Like kvw_fleet_candidates, but into a loop's table, whose items are filled again only if
 * something has changed since, or will change with time alone. */
void kvw_fleet_read(const struct kvw_fleet *fleet, struct kvw_slice model,
	struct kvw_fleet_table *table, bool *known, struct kvw_model **entry);

static inline bool kvw_fleet_any_usable(const struct kvw_fleet_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->items[i].usable)
			return true;
	return false;
}

/* Records an attempt's grade; a bad one is logged with `why`. trial: from kvw_fleet_picked. */
void kvw_fleet_judge(struct kvw_fleet *fleet, struct kvw_worker *worker, enum kvw_grade grade,
	bool trial, const char *why, int64_t now_ns);
/* Called when a request goes to the worker. True: it is the trial of an ejected worker, and
 * kvw_fleet_judge must follow. */
bool kvw_fleet_picked(struct kvw_fleet *fleet, struct kvw_worker *worker, int64_t now_ns);

/* Drops what is known of the cache of a worker that has lost it: its process_start_time_seconds
 * changed, or kvway forwarded a reset. */
void kvw_fleet_cache_lost(struct kvw_fleet *fleet, struct kvw_worker *worker, const char *why);

/* Learns units (bytes) per token of a model from one answer's usage. */
void kvw_model_learn(struct kvw_model *model, uint64_t units, uint32_t prompt_tokens);
float kvw_model_tokens_per_unit(const struct kvw_model *model, double prior_bytes_per_token);
/* Returns the tokens per unit of one request's prompt: 1 for token ids, else the ratio of prompts
 * with the same beginning, else the model's (NULL: the prior). Fills *keys, for learning the ratio
 * from the answer. */
float kvw_fleet_tokens_per_unit(const struct kvw_fleet *fleet, const struct kvw_model *model,
	const struct kvw_route_request *request, struct kvw_ratio_keys *keys);

/* --- control thread: membership --- */
/* Adds a worker, which loops see at once; the caller has it probed, and resolved if it has
 * KVW_BARRED_NO_ADDRESS. `why` gets the reason of KVW_EINVAL (its URL, upstream.tls), KVW_ELIMIT
 * (no free slot) or KVW_ENOMEM. */
enum kvw_err kvw_fleet_add(struct kvw_fleet *fleet, const struct kvw_worker_config *config,
	char *why, size_t room, struct kvw_worker **out) KVW_MUST_CHECK;
/* Sets or clears a reason for which the worker gets no new requests. Any thread. */
void kvw_fleet_bar(
	struct kvw_fleet *fleet, struct kvw_worker *worker, enum kvw_barred reason, bool set);
/* Called when a request is sent that puts the worker to sleep: the worker gets no other request
 * from now on, and metrics requested earlier do not change that. kvw_fleet_said_sleep must follow.
 * Any thread. */
void kvw_fleet_puts_to_sleep(struct kvw_fleet *fleet, struct kvw_worker *worker);
/* Records whether the worker sleeps, by its answer, or because it did not answer. Any thread. */
void kvw_fleet_said_sleep(
	struct kvw_fleet *fleet, struct kvw_worker *worker, bool asleep, int64_t now_ns);
/* Sets all addresses of the worker's name; count 0: the name has none. */
void kvw_fleet_set_addresses(struct kvw_fleet *fleet, struct kvw_worker *worker,
	const struct sockaddr_storage *addresses, size_t count);
/* Takes over settings and puts them in force. The former ones stay as long as a request of any loop
 * needs them. */
void kvw_fleet_set_settings(struct kvw_fleet *fleet, struct kvw_settings *settings);
/* Makes a LIVE worker GONE. Requests that run on it are moved or cut. */
void kvw_fleet_remove(struct kvw_fleet *fleet, struct kvw_worker *worker);
/* Frees the slots of GONE workers without holders, and models beyond the kept number. Returns the
 * number of workers still GONE. */
size_t kvw_fleet_reap(struct kvw_fleet *fleet);

/* --- control thread --- */
/* Records a health probe; ok: it succeeded. Applies health.fall and health.rise; logs changes. */
void kvw_fleet_set_probe(struct kvw_fleet *fleet, struct kvw_worker *worker, bool ok,
	const char *why);
/* Remembers a model's ratio that a former process of kvway learned, as the first ratio of a model
 * of this name. At most KVW_REMEMBERED_MOST models; further ones, and invalid values, are ignored.
 * Called by the control thread, or before it runs. */
#define KVW_REMEMBERED_MOST 1024
void kvw_fleet_remember_model(
	struct kvw_fleet *fleet, struct kvw_slice name, uint32_t units_per_token_q16);
/* Records whether the worker's last probe failed only by timeout. Called before
 * kvw_fleet_set_probe. */
void kvw_fleet_set_late(struct kvw_fleet *fleet, struct kvw_worker *worker, bool late);
/* Sets the worker's list from /v1/models (LoRA names too), which was requested at asked_ns, with
 * the card of each model. Takes the list's contents, and leaves it empty. */
enum kvw_err kvw_fleet_take_listed(struct kvw_fleet *fleet, struct kvw_worker *worker,
	struct kvw_model_names *listed, int64_t asked_ns) KVW_MUST_CHECK;
/* Sets the worker's list from a configuration, which has only names. Copies. */
enum kvw_err kvw_fleet_set_models(struct kvw_fleet *fleet, struct kvw_worker *worker,
	const char *const *names, size_t count) KVW_MUST_CHECK;
/* Sets other models (none: the worker is asked from now on) and another weight; the rest of config
 * must be unchanged. Copies. */
enum kvw_err kvw_fleet_change(struct kvw_fleet *fleet, struct kvw_worker *worker,
	const struct kvw_worker_config *config) KVW_MUST_CHECK;
/* Sets the worker's capacity, from vllm:cache_config_info: usable tokens = (num_gpu_blocks - 1) *
 * block_size. */
void kvw_fleet_set_capacity(struct kvw_worker *worker, uint64_t tokens, uint32_t block_size);
/* Sets whether the worker reuses fragments, from kvtier:fragments_enabled. */
void kvw_fleet_set_blends(struct kvw_worker *worker, bool blends);
/* Sets the foreign requests that the worker's metrics show. */
void kvw_fleet_set_foreign(
	struct kvw_fleet *fleet, struct kvw_worker *worker, const struct kvw_foreign_found *found);
/* Sets the worker's stall state. */
void kvw_fleet_set_stall(
	struct kvw_fleet *fleet, struct kvw_worker *worker, enum kvw_stall_state state);
/* Begins slow start of a worker that is new or has just returned. */
void kvw_fleet_start_slowly(struct kvw_fleet *fleet, struct kvw_worker *worker);

#endif
