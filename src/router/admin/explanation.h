/*
 * explanation.h - decisions of the steps of a request's way in a dry run, as the steps note them.
 */
#ifndef KVW_EXPLANATION_H
#define KVW_EXPLANATION_H

#include "admin/explain.h"
#include "base/page.h"
#include "feeds/feed.h"
#include "rates/rates.h"

#define KVW_EXPLAINED_STEPS 64 /* more than a way has; further ones are left out */

/* The answer of one step. */
struct kvw_explained_step {
	const char *name, *verdict; /* static */
	char why[160];              /* "": nothing to say */
};

/* Budgets that one party (key, tenant or model) has left. */
struct kvw_explained_limit {
	const char *of; /* static */
	struct kvw_slice name,
		served_as; /* served_as: what workers call the model; len 0: as name */
	struct kvw_rate_state state;
};

/* The result of a dry run, which it borrows from. */
struct kvw_explanation {
	/* --- what it is made from --- */
	int64_t now_ns;
	bool cold; /* made from a file, nothing runs: workers without a list serve every model */
	bool by_chance; /* no x-request-id: where that decides, the largest group is explained */
	const struct kvw_config *config;
	const struct kvw_fleet *fleet;
	const struct kvw_metrics *metrics; /* of the loops; NULL: none */
	struct kvw_feed *feed;             /* NULL: none */
	struct kvw_keyring *keyring;       /* of key */
	const struct kvw_client_key *key;  /* NULL: the request comes by none */

	/* --- what was decided --- */
	const char *strategy;
	struct kvw_slice target, model; /* model: len 0: none is named */
	bool body_read, content_known, session_known;
	const struct kvw_model_group
		*group; /* whose workers alone are asked; NULL: the model is not divided */
	const char *group_by;
	const char *tokens, *tokens_from; /* NULL: the strategy does not want them */
	uint32_t exact_tokens;
	struct kvw_candidates set;    /* ascending by id */
	struct kvw_cost *costs;       /* [set.count] */
	struct kvw_decision decision; /* of the strategy, then of the step that chose */
	bool none;                    /* the strategy found no usable worker */
	struct {
		const char *verdict; /* NULL: admission is not enabled */
		const char *reason;
		const char *class; /* NULL: there are none */
		int64_t wait_ns, waiting;
		struct kvw_service_level_ms promise;
	} admission;
	struct kvw_explained_limit limits[KVW_RATE_KINDS];
	size_t limit_count;
	struct kvw_explained_step steps[KVW_EXPLAINED_STEPS];
	size_t step_count;

	/* --- the answer that kvway itself would give; status 0: none --- */
	int status;
	const char *param, *code;
	char message[1024];
};

/* Remark of the step that answers next. */
__attribute__((format(printf, 2, 3))) void kvw_explanation_note(
	struct kvw_explanation *e, const char *format, ...);

/* The explanation as JSON, or the error. */
enum kvw_err kvw_explanation_answer(
	const struct kvw_explanation *e, struct kvw_local_answer *out) KVW_MUST_CHECK;

#endif
