/*
 * problems.h - what is wrong now, in plain words, with the cause and what to do: for the page, for
 * `kvway top` and for `kvway explain`, which show these sentences as they are.
 *
 * Each problem has a `code` (stable, for scripts), a `severity` (error: requests fail; warning:
 * they are slower or fewer than need be, or will fail; note: it is meant so), the sentences
 * `what`, `why` and `do`, and `worker` (a URL) where it is one worker's. Everything that is read
 * was known before: this room draws conclusions and measures nothing.
 *
 * Threads: the control thread.
 */
#ifndef KVW_STATUS_PROBLEMS_H
#define KVW_STATUS_PROBLEMS_H

#include <jansson.h>

#include "status/history.h"
#include "status/seen.h"
#include "status/workers_now.h"

#define KVW_PROBLEMS_MOST 100 /* further ones are counted */

enum kvw_severity { KVW_SEVERITY_ERROR, KVW_SEVERITY_WARNING, KVW_SEVERITY_NOTE, KVW_SEVERITIES };

/* Facts in which problems are found; borrowed. */
struct kvw_problem_facts {
	const struct kvw_admin_facts *admin;
	const struct kvw_workers_now *workers;
	const struct kvw_history *history;
	const struct kvw_seen *seen;
	const struct kvw_metrics_totals *totals;
	int64_t now_ns;
};

struct kvw_problems {
	const struct kvw_problem_facts *facts;
	json_t *lists[KVW_SEVERITIES];
	size_t count;
};

/* Returns the list, errors first. NULL: out of memory. */
json_t *kvw_problems_json(const struct kvw_problem_facts *facts);

/* Returns a text as JSON; if it is no UTF-8, question marks replace its bytes above ASCII. */
json_t *kvw_problem_text(char *text, size_t len);

/* --- for the files that find them --- */

/* Adds a problem. worker: its URL; NULL: it is not one worker's. format: the sentences `what`,
 * `why` and `do`, with newlines between them. */
__attribute__((format(printf, 5, 6))) void kvw_problem_add(struct kvw_problems *problems,
	enum kvw_severity severity, const char *code, const char *worker, const char *format, ...);

void kvw_problems_of_traffic(struct kvw_problems *problems);  /* problems_traffic.c */
void kvw_problems_of_workers(struct kvw_problems *problems);  /* problems_workers.c */
void kvw_problems_of_settings(struct kvw_problems *problems); /* problems_settings.c */

#endif
