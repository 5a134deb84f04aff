/*
 * answer.h - makes local answers from nothing but their arguments. Private to src/router/admin;
 * other folders call kvw_admin_answer().
 */
#ifndef KVW_ANSWER_H
#define KVW_ANSWER_H

#include "admin/admin.h"
#include "admin/reload.h"

struct kvw_answer_state {
	const struct kvw_admin_deps *deps;
	bool draining;
	const struct kvw_reload_state *reload; /* NULL: there is none */
	const struct kvw_member_listing *listings; /* by source; NULL: there are no sources */
	int64_t created_s; /* wall clock; shown as `created` of models */
};

/* Makes a local answer like kvw_admin_answer(). */
enum kvw_err kvw_answer(const struct kvw_answer_state *state, struct kvw_slice path,
	const struct kvw_client_key *key, int64_t now_ns,
	struct kvw_local_answer *out) KVW_MUST_CHECK;

#endif
