/*
 * node.c - decides whether this process uses the node's daemon or its own store; node.h has the
 * rules.
 *
 * The daemon is a tier that may be away: each request tries it, and its breaker stops using it for
 * a while. So a restart of the daemon needs no new decision. The decision is made once: a store
 * that is opened later would be useless to the other engines, and giving up a store would lose its
 * chunks.
 */
#include "core/node.h"

#include <stdio.h>
#include <string.h>

#include "chunk/l2_url.h"
#include "tiers/tiers.h"

static bool is_set(const char *text)
{
	return text != NULL && text[0] != '\0';
}

/* Returns why the settings exclude the daemon, whatever it answers; NULL: they do not. */
static const char *obstacle(const struct kvt_config *c)
{
	struct kvt_l2_url url;

	if (is_set(c->protect_keys))
		return "it holds chunks in plain: not used with protect.keys";
	if (kvt_l2_url_parse(c->node_url, &url) != NULL || url.kind != KVT_L2_TIER_kvtierd)
		return "expected kvtierd://HOST:PORT";
	return NULL;
}

static void use_daemon(struct kvt_config *c, const struct kvt_surroundings *s)
{
	char why[KVT_REASON_BYTES];

	kvt_note(s, KVT_LOG_INFO,
		"node: chunks are kept in kvtierd at %s, which other engines of this node share; "
		"no store of one's own",
		c->node_url);
	if (is_set(c->l2_url) && strcmp(c->l2_url, c->node_url) != 0)
		kvt_note(s, KVT_LOG_WARN,
			"node: l2.url is not used: give it to kvtierd, as cache.l2.url of its "
			"configuration");
	if (!kvt_node_segment(c->node_segment, why))
		kvt_note(s, KVT_LOG_WARN,
			"node: %s; nothing is found until kvtierd's segment.name is node.segment "
			"and both see one /dev/shm",
			why);
	c->l2_url = c->node_url;
	c->l2_segment = c->node_segment;
	c->nvme_path = "";
}

bool kvt_node_settle(struct kvt_config *c, const struct kvt_surroundings *s)
{
	bool always = strcmp(c->node_share, "always") == 0;
	char why[KVT_REASON_BYTES] = "";
	const char *cannot;

	if (!always && strcmp(c->node_share, "auto") != 0)
		return false;
	cannot = obstacle(c);
	if (cannot == NULL && (always || kvt_node_answers(c, s, why))) {
		use_daemon(c, s);
		return true;
	}
	kvt_note(s, cannot != NULL ? KVT_LOG_ERROR : KVT_LOG_INFO,
		"node: a store of one's own, not kvtierd at %s: %s", c->node_url,
		cannot != NULL ? cannot : why);
	return false;
}
