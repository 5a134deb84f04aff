/*
 * feature.h - what single features keep of a request. Parts of its exchange, zeroed with it.
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
#include "proxy/client.h"
#include "proxy/owners.h"
#include "rates/rates.h"

struct kvw_config;

/* Why a request can have no group of its model. */
enum kvw_group_fault {
	KVW_GROUP_GOOD,
	KVW_GROUP_UNKNOWN,   /* it wishes for one that its model does not have */
	KVW_GROUP_UNWRITTEN, /* the group's name for the model cannot be written into its body */
	/* nor could it in full now: the body may be changed in part, and goes nowhere */
	KVW_GROUP_NO_MEMORY,
};

/* A model that is woken (waking.h). */
struct kvw_waking {
	struct kvw_wake_model *model; /* NULL: it has not waited for one */
	int64_t first_ns; /* since when it waited first; 0: it has not */
	bool woken;       /* a worker was ready, and it is on its way there */
};

/* Of a model that is divided (groups.h). */
struct kvw_division {
	/* of config: its workers alone serve it; NULL: any that have its model */
	const struct kvw_model_group *group;
	enum kvw_group_by by;   /* why that group */
	/* the one that its header names; len 0: none, or it does not count */
	struct kvw_slice wish;
	uint64_t key;           /* by which its group is chosen */
	enum kvw_group_fault fault;
};

/* Limits of its key, tenant and model (rate.h). */
struct kvw_rating {
	bool rated;       /* it was charged, and what follows counts */
	bool line_ended;  /* the stream is behind an end of line */
	uint32_t events;  /* of the stream so far */
	uint64_t prompt;  /* its tokens, predicted */
	uint64_t answers; /* that an engine writes; 0: none */
	struct kvw_rate_ticket ticket;
};

/* Exact tokens, for a strategy that wants them (prepare.h). */
struct kvw_exact_tokens {
	bool seen;    /* `inexact` says what came of them */
	bool in_body; /* as ids */
	enum kvw_inexact inexact;
	struct kvw_token_job *job;   /* under way; NULL: none is */
	struct kvw_token_list *list; /* a reference; NULL: none, or in the body */
};

/* admit.h. */
struct kvw_admitting {
	struct kvw_entrant entrant;
	struct kvw_gate *gate; /* the loop's; NULL: it was not asked */
	bool entered;          /* the entrant's own fields are filled */
	bool admitted;         /* it may be sent to entrant.wait.worker */
	enum kvw_reason wish;  /* why the strategy would have sent it ... */
	uint32_t wished;       /* ... to this worker */
};

/* What one worker alone keeps (asked.h). */
struct kvw_asking {
	bool continues; /* the body goes on with a response */
	bool asking;    /* which worker that is is not known: one is asked after the other */
	uint32_t first; /* the first of them ... */
	uint32_t to;    /* ... and then those with lower numbers than this */
};

#define KVW_TRIED_MAX 17 /* 1 + the largest retry.attempts */

/* What has been tried for it, and by which workers in vain (tried.h). */
struct kvw_tried {
	uint32_t attempts;     /* at any worker */
	uint32_t fresh; /* further ones at the same worker, as a kept connection was closed */
	uint32_t suspicions;   /* workers that this request may have broken */
	/* a worker that takes so many tokens has said that it is; 0: none has */
	uint32_t too_long_for;
	bool full;             /* its last worker was: it may wait for one with room */
	bool lists_awaited;    /* it has waited for newer model lists */
	uint8_t rank_refusals; /* of its worker's rank (rank.h) */
	uint8_t broke_off;     /* full ones that broke their streams off, it seemed (busy.h) */
	uint32_t count;        /* workers that have failed it */
	/* --- not zeroed: `count` and the text's first byte say what is there --- */
	uint32_t ids[KVW_TRIED_MAX];
	uint32_t uses[KVW_TRIED_MAX]; /* of the slot then: another worker may be in it since */
	/* For the client: "url: why; url: why", or "one: why; another: why"; empty while count is
	 * 0 */
	char text[384];
};

/* Its client: by which key it comes (guard.h), from where (front.h). */
struct kvw_caller {
	struct kvw_keyring *keyring;      /* a reference; NULL: no keys are asked for */
	const struct kvw_client_key *key; /* of the keyring: by which it came; NULL: by none */
	bool model_allowed;               /* to the key, which was looked at */
	/* its address, as a trusted proxy says; "": the connection's own */
	char via[KVW_CLIENT_ADDRESS];
};

/* The web page that sends it (cors.h). */
struct kvw_web_page {
	struct kvw_slice origin; /* in the raw head; len 0: of none */
	bool preflight; /* a browser asks whether the page may send the request that follows */
};

/* Of POST /invocations; path.api is another one once its body was read (sagemaker.h). */
struct kvw_sagemaker {
	bool invocation;          /* it is one, and what follows counts */
	/* in the raw head: the model, before the body's word; len 0: none */
	struct kvw_slice adapter;
	struct kvw_slice session; /* likewise: one that a worker keeps */
};

/* What kvway changes in the body (rewrite.h). */
struct kvw_rewriting {
	/* the model that it asked for was one, of config; NULL: none */
	const struct kvw_model_alias *alias;
	const char *rename_to; /* the body's model now; config's; NULL: it is as it came */
	bool salted;                         /* the body has its tenant's salt */
	bool stripped; /* it was read, and has no member left that its key may not send */
};

/* Comments for a client whose stream waits (silence.h). */
struct kvw_silence {
	struct kvw_timer timer; /* http.keep_alive_comments */
	bool opened;            /* the client was sent a head of status 200 and comments */
};

/* The id of what the answer makes (whose.h). */
struct kvw_made {
	bool sought;                 /* it is still to be found */
	size_t len;                  /* of text */
	char text[KVW_OWNER_PREFIX]; /* the answer's first bytes */
};

#endif
