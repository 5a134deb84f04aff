/*
 * explanation.h - what the steps of a request's way have noted in a dry run: their decisions, and
 * the data behind them.
 */
#ifndef KVW_EXPLANATION_H
#define KVW_EXPLANATION_H

#include "admin/explain.h"
#include "base/page.h"
#include "feeds/feed.h"
#include "rates/rates.h"

#define KVW_EXPLAINED_STEPS 64 /* more than there are steps; further ones would be left out */

/* The answer of one step. */
struct kvw_explained_step {
	const char *name, *verdict; /* static */
	char why[160];              /* "": nothing to say */
};

/* The rest of the limits of one party (key, tenant or model). */
struct kvw_explained_limit {
	const char *of; /* static */
	/* served_as: name under which workers know the model; len 0: the same as `name` */
	struct kvw_slice name,
		served_as;
	struct kvw_rate_state state;
};

/* The result of a dry run, from which it borrows. */
struct kvw_explanation {
	/* --- what the dry run was made from --- */
	int64_t now_ns;
	/* all is made from a file and no worker runs: workers without a list serve every model */
	bool cold;
	/* the question has no x-request-id: where that would draw the group, the largest one is
	 * explained */
	bool by_chance;
	const struct kvw_config *config;
	const struct kvw_fleet *fleet;
	const struct kvw_metrics *metrics; /* metrics of the loops; NULL: none */
	struct kvw_feed *feed;             /* NULL: none */
	struct kvw_keyring *keyring;       /* of key */
	const struct kvw_client_key *key;  /* the key with which the request comes; NULL: none */

	/* --- what was decided --- */
	const char *strategy;
	struct kvw_slice target, model; /* model: len 0: the request names none */
	bool body_read, content_known, session_known;
	const struct kvw_model_group
		/* the group whose workers alone are asked; NULL: the model is not divided */
		*group;
	const char *group_by;
	const char *tokens, *tokens_from; /* NULL: the strategy does not use exact tokens */
	uint32_t exact_tokens;
	struct kvw_candidates set;    /* ascending by id */
	struct kvw_cost *costs;       /* [set.count] */
	/* decision of the strategy, or of the step that chose instead */
	struct kvw_decision decision;
	bool none;                    /* the strategy found no usable worker */
	struct {
		const char *verdict; /* NULL: admission is off */
		const char *reason;
		const char *class; /* NULL: there are no classes */
		int64_t wait_ns, waiting;
		struct kvw_service_level_ms promise;
	} admission;
	struct kvw_explained_limit limits[KVW_RATE_KINDS];
	size_t limit_count;
	struct kvw_explained_step steps[KVW_EXPLAINED_STEPS];
	size_t step_count;

	/* --- the answer that kvway itself would give; status 0: a worker would answer --- */
	int status;
	const char *param, *code;
	char message[1024];
};

/* Adds a remark to the step that answers next. */
__attribute__((format(printf, 2, 3))) void kvw_explanation_note(
	struct kvw_explanation *e, const char *format, ...);

/* Makes the answer: the explanation as JSON, or the error. */
enum kvw_err kvw_explanation_answer(
	const struct kvw_explanation *e, struct kvw_local_answer *out) KVW_MUST_CHECK;

#endif
