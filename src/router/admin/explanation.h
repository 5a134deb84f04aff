/*
 * explanation.h - one explanation while it is made. Private to explain.c and explain_page.c.
 */
#ifndef KVW_EXPLANATION_H
#define KVW_EXPLANATION_H

#include "openai/api_path.h"
#include "admin/explain.h"
#include "feeds/kvspace.h"
#include "base/page.h"
#include "openai/cuts.h"
#include "openai/scan.h"

struct kvw_explanation {
	const struct kvw_explain_source *source;
	const struct kvw_explain_query *query;
	int64_t now_ns;
	struct kvw_slice target;
	struct kvw_path_info path;
	const struct kvw_model_alias *alias; /* that the body names; NULL: none */
	struct kvw_scan *scan;          /* lends what route refers to */
	struct kvw_separator separator; /* of its cuts */
	struct kvw_route_request route;
	struct kvw_kvchains chains;     /* what route.exact points into */
	bool whole;                     /* the body is one that is read before a worker is picked */
	struct kvw_model *model;        /* NULL: none is named, or it is not known */
	const struct kvw_model_group *group; /* whose workers alone are asked; NULL: the model is not divided */
	const char *group_by;           /* why that one; static */
	struct kvw_candidate *items;    /* [KVW_MAX_WORKERS] */
	struct kvw_candidates set;      /* of items: the model's workers, ascending by id */
	struct kvw_cost *costs;         /* [KVW_MAX_WORKERS]; the first set.count are filled */
	struct kvw_decision decision;

	/* With admission.enabled; static texts and the configuration's. */
	struct {
		const char *verdict; /* NULL: nothing is said of it */
		const char *reason;
		const char *class;   /* NULL: there are none */
		int64_t wait_ns, waiting;
		struct kvw_service_level_ms promise;
	} admission;

	/* Why there is none; status 0: there is one. */
	int status;
	const char *param;
	char message[1024];
};

/* --- explain.c --- */
/* What the request asks for, and which workers could serve it. On error e->status may say why. */
enum kvw_err kvw_explanation_begin(struct kvw_explanation *e) KVW_MUST_CHECK;
void kvw_explanation_finish(struct kvw_explanation *e);

/* --- explain_group.c --- */
/* Which group would serve it, before candidates are looked for; e->items has room. e->route has its name for the model. */
enum kvw_err kvw_explanation_divide(struct kvw_explanation *e) KVW_MUST_CHECK;
/* Of a set, the group's; returns how many. */
size_t kvw_explanation_keep(const struct kvw_explanation *e, size_t count);
/* The group does not have this worker. */
bool kvw_explanation_other_group(const struct kvw_explanation *e, const struct kvw_worker *worker);
/* The model as clients know it. */
struct kvw_slice kvw_explanation_model(const struct kvw_explanation *e);

/* --- explain_admission.c --- */
/* After the decision. */
void kvw_explanation_admission(struct kvw_explanation *e, int64_t now_ns);

/* --- explain_limits.c --- */
/* Writes the member `limits`, where they are known. */
void kvw_explanation_limits(const struct kvw_explanation *e, struct kvw_page *text);

/* --- explain_tokens.c --- */
/* Adds the prompt's names to e->route, if its tokens are known. */
enum kvw_err kvw_explanation_tokens(struct kvw_explanation *e) KVW_MUST_CHECK;
/* Where tokens came from, or why there are none; static text. */
const char *kvw_explanation_tokens_from(const struct kvw_explanation *e);

/* Writes the explanation as JSON. */
void kvw_explanation_print(const struct kvw_explanation *e, struct kvw_page *text);

#endif
