/*
 * feature.h - the parts of an exchange that belong to single features. Zeroed with the exchange.
 *
 * A reader without a use for a feature need not know its struct: the comment above each struct
 * names the header that says more.
 */
#ifndef KVW_FEATURE_H
#define KVW_FEATURE_H

#include "admission/gate.h"
#include "auth/keyring.h"
#include "feeds/tokens/tokens.h"
#include "kvway/slice.h"
#include "base/timer.h"
#include "openai/splice.h"
#include "proxy/client.h"
#include "proxy/owners.h"
#include "rates/rates.h"

struct kvw_config;

/* Why a request can have no group of its model. */
enum kvw_group_fault {
	KVW_GROUP_GOOD,
	KVW_GROUP_UNKNOWN,   /* the model has no group of the wished name */
	KVW_GROUP_UNWRITTEN, /* the group's name for the model cannot be written into its body */
	/* the rename ran out of memory: the body may be changed in part, and is never sent */
	KVW_GROUP_NO_MEMORY,
};

/* State of the wait for a model that is being woken (waking.h). */
struct kvw_waking {
	struct kvw_wake_model *model; /* NULL: the request has not waited for a model */
	int64_t first_ns; /* when the first wait began; 0: none did */
	bool woken;       /* a worker became ready, and the request is on its way there */
};

/* The choice of a group, where the request's model is divided (groups.h). */
struct kvw_division {
	/* borrowed from the configuration: only this group's workers serve the request; NULL: any
	 * worker of the model */
	const struct kvw_model_group *group;
	enum kvw_group_by by;   /* why that group */
	/* the group that the header names; len 0: none, or the header is not allowed */
	struct kvw_slice wish;
	uint64_t key;           /* hash by which the group is drawn */
	enum kvw_group_fault fault;
};

/* The charge to the limits of the request's key, tenant and model (rate.h). */
struct kvw_rating {
	bool rated;       /* the request was charged, and the members below count */
	bool line_ended;  /* the last byte of the stream ended a line */
	uint32_t events;  /* events of the stream so far */
	uint64_t prompt;  /* predicted tokens of the prompt */
	uint64_t answers; /* answers that an engine writes for the request; 0: none */
	struct kvw_rate_ticket ticket;
};

/* Exact tokens, for a strategy that wants them (prepare.h). */
struct kvw_exact_tokens {
	bool seen;    /* tokens were asked for, and `inexact` names the result */
	bool in_body; /* as ids */
	enum kvw_inexact inexact;
	struct kvw_token_job *job;   /* running; NULL: none */
	/* a reference; NULL: there are none, or the body itself has token ids */
	struct kvw_token_list *list;
};

/* admit.h. */
struct kvw_admitting {
	struct kvw_entrant entrant; /* the request as the gate sees it (admission/gate.h) */
	struct kvw_gate *gate; /* one of the loop's gates; NULL: the request was not judged */
	bool entered;          /* the entrant's members that its caller fills are filled */
	bool admitted;         /* the request may be sent to entrant.wait.worker */
	bool predicted;        /* the request's prediction was counted (predicted.h) */
	enum kvw_reason wish;  /* the strategy's reason for its choice ... */
	uint32_t wished;       /* ... the chosen worker ... */
	enum kvw_knowledge knowledge; /* ... and what it knew of all workers */
};

/* The search for an object that one worker alone keeps (asked.h). */
struct kvw_asking {
	bool continues; /* the body continues a response */
	bool asking;    /* the worker is unknown, so that kvway asks one worker after the other */
	uint32_t first; /* the worker asked first ... */
	uint32_t to; /* ... after which all workers with lower numbers than this one were asked */
};

#define KVW_TRIED_MAX 17 /* 1 + the largest retry.attempts */

struct kvw_exchange;
struct kvw_leg;
struct kvw_transfer_kind;

#define KVW_TRANSFER_PARAMS_ROOM 640 /* bytes that `ask` and `give` of a transfer write at most */

enum kvw_pd_state {
	KVW_PD_UNPLANNED,
	KVW_PD_PLANNED,    /* `prefiller` will prefill the prompt */
	KVW_PD_PREFILLING, /* it does */
	KVW_PD_PREFILLED,  /* `params` say where the prefilled KV is */
	KVW_PD_ALONE,      /* the decoder gets the request whole, and prefills it itself */
};

/* A prompt that one worker prefills and another decodes (pd.h). Requests to a fleet without roles
 * have none. */
struct kvw_parted {
	struct kvw_exchange *x;
	enum kvw_pd_state state;
	bool looked;           /* a pair was looked for on this walk through the steps */
	bool picked;           /* the strategy has picked `decision`; its done() must be called */
	bool settled;          /* the request must not be split again */
	bool probe;            /* its transfer decides whether the pair works again */
	bool counted;          /* counted as served whole by the decoder after a failed leg */
	bool denied;           /* the last leg was answered 4xx: presumably the request's own fault */
	bool ended;            /* the transfer's outcome was counted before the attempt's end */
	bool failed;           /* a leg has failed */
	bool given;            /* the decoder's body is the client's, and it finds the KV itself */
	char id[33];           /* of the last leg's transfer; random */
	const struct kvw_transfer_kind *kind; /* of the last plan */
	uint8_t leg_time;      /* enum kvw_leg_time (transfer.h), of the last leg */
	char source[KVW_KV_SOURCE_ROOM]; /* the prefiller's kv_source as that leg began */
	uint32_t legs;         /* begun */
	struct kvw_decision decision;  /* why this prefiller */
	struct kvw_leg *leg;           /* the leg under way; NULL: none */
	void (*end_leg)(struct kvw_exchange *x); /* ends that leg, when the decoder's attempt ends */
	struct kvw_worker *prefiller;  /* the prefiller of the last leg, held; NULL: none */
	char *params;          /* parameters of the prefiller's answer; owned, NULL: none */
	size_t params_len;
	/* The client's body since the last leg began, from which both legs send; in its block, or
	 * owned by `copy`. */
	struct kvw_slice plain;
	char *copy;
	uint64_t memory;       /* bytes of limits.body_memory charged for `copy` */
	/* The body with parameters that the present attempt sends instead of the client's own;
	 * count 0: none. */
	struct kvw_pieces body;
	size_t body_sent;
	char told[KVW_TRANSFER_PARAMS_ROOM]; /* the parameters, if the transfer's kind wrote them */
	uint64_t engine;       /* hash of the prefiller's engine id; 0: not known */
	int64_t answered_ns;   /* when the last byte of the prefiller's answer came */
	int64_t until_ns;      /* when half of the prefiller's lease will have passed */
	int64_t handed_ns;     /* when the decoder was sent its first byte; 0: not yet */
	double tokens, transfer_ns; /* to be transferred, and how long that takes */
	/* runs for the leg's connection, then for the leg's answer if the decoder is asked
	 * meanwhile, or for the lease */
	struct kvw_timer timer;
	int64_t rank_number;        /* rank number in the leg's head; KVW_RANK_NONE: none */
	/* The next members are for the log. */
	int64_t prefill_ns;
	uint32_t prompt_tokens, cached_tokens;
};

/* Attempts so far, and the workers that failed the request (tried.h). */
struct kvw_tried {
	uint32_t attempts;     /* at any worker */
	/* attempts that were repeated at the same worker, since it had closed a kept connection */
	uint32_t fresh;
	uint32_t suspicions;   /* workers that this request may have broken */
	/* longest prompt of a worker that refused this one as too long; 0: none did */
	uint32_t too_long_for;
	bool full; /* the last worker was full: the request may wait for one with room */
	bool lists_awaited;    /* the request has waited for newer model lists, or looked again */
	uint8_t rank_refusals; /* how often the number of a worker's rank was refused (rank.h) */
	/* how many workers broke their streams off, presumably because they were full (busy.h) */
	uint8_t broke_off;
	uint32_t count;        /* workers that have failed the request */
	/* --- members that are not zeroed: `count` and the text's first byte limit their valid part
	 * --- */
	uint32_t ids[KVW_TRIED_MAX];
	/* use of each worker's slot at that time, since another worker may occupy the slot later */
	uint32_t uses[KVW_TRIED_MAX];
	/* the same of each worker's lead, which stands for its server (worker.h) */
	uint32_t lead_ids[KVW_TRIED_MAX];
	uint32_t lead_uses[KVW_TRIED_MAX];
	/* for the client: "url: why; url: why", or "one: why; another: why"; empty while count
	 * is 0 */
	char text[384];
};

/* The request's client: its key (guard.h), its address (front.h). */
struct kvw_caller {
	struct kvw_keyring *keyring;      /* a reference; NULL: clients need no keys */
	const struct kvw_client_key *key; /* the request's key, in the keyring; NULL: none */
	bool model_allowed;               /* `key` is set and may use the model */
	/* the client's address, as a trusted proxy names it; "": the connection's own */
	char via[KVW_CLIENT_ADDRESS];
};

/* The web page that sends the request (cors.h). */
struct kvw_web_page {
	/* the page's origin, a slice of the raw head; len 0: not from a page */
	struct kvw_slice origin;
	bool preflight; /* a browser asks whether the page may send the request that follows */
};

/* Fields of POST /invocations; the body's scan sets path.api to the real path's (sagemaker.h). */
struct kvw_sagemaker {
	bool invocation;          /* the path is /invocations, and the members below count */
	/* slice of the raw head: the model, which overrides the body's; len 0: none */
	struct kvw_slice adapter;
	struct kvw_slice session; /* slice of the raw head: a session that a worker keeps */
	bool handled; /* the answer's head names a session that was made or closed */
};

/* kvway's changes of the body (rewrite.h). */
struct kvw_rewriting {
	/* borrowed from the configuration: the alias that the request named as its model; NULL:
	 * none */
	const struct kvw_model_alias *alias;
	/* borrowed from the configuration: the model's new name in the body; NULL: unchanged */
	const char *rename_to;
	bool salted;                         /* the body carries its tenant's salt */
	/* the body was read, and every member that its key may not send was removed */
	bool stripped;
};

/* Comments for a client whose stream waits (silence.h). */
struct kvw_silence {
	struct kvw_timer timer; /* timer of http.keep_alive_comments */
	bool opened;            /* the client was sent a head of status 200 and comments */
};

/* The id of the object that the answer creates (whose.h). */
struct kvw_made {
	bool sought;                 /* kvway still looks for the id in the answer */
	size_t len;                  /* length of `text` */
	char text[KVW_OWNER_PREFIX]; /* first bytes of the answer */
};

#endif
