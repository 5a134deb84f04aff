/*
 * app_parts.h - every part of a running router. Private to app.c, which makes them, and app_wait.c,
 * in which the main thread waits for their end.
 */
#ifndef KVW_APP_PARTS_H
#define KVW_APP_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "admin/explain.h"
#include "base/account.h"
#include "base/duty.h"
#include "config/config.h"
#include "proxy/dry.h"
#include "otel/exporter.h"
#include "server/sockets.h"
#include "takeover/state.h"

/* All parts of a running router, in the order in which they are made. */
struct kvw_app {
	const struct kvw_config *config; /* configuration of the start */
	const char *config_path;
	/* listening sockets of this process, opened here or handed over */
	struct kvw_sockets sockets;
	struct kvw_takeover_state takeover;
	struct kvw_taker *taker; /* NULL: nothing is taken over, or the takeover is complete */
	struct kvw_giver *giver;
	const struct kvw_successor *successor; /* that SIGUSR2 starts */
	pid_t child; /* the successor that this process has started; 0: none is running */
	size_t loop_count;
	_Atomic int64_t *loop_turn_ns; /* [loop_count] */
	struct kvw_auth *auth;         /* NULL: clients need no keys */
	struct kvw_sharing *sharing;   /* NULL: limits are counted by this replica alone */
	/* Shares load with other replicas; equals `sharing` if both use one Redis; NULL: none. */
	struct kvw_sharing *load_sharing;
	struct kvw_duty coordinating; /* as LMCache's coordinator, among the replicas */
	struct kvw_auth *admin_auth;   /* keys of the admin address */
	struct kvw_state *state; /* snapshots */
	int snapshot;            /* snapshot of the process before this one, owned; -1: none */
	int64_t recall_until_ns; /* 0: no limit */
	struct kvw_fleet *fleet; /* contains the strategy, and the configuration of a reload */
	/* Parts for the strategy kvaware; NULL with any other strategy. */
	struct kvw_kvspaces *spaces;
	struct kvw_feed *feed;
	struct kvw_tokens *tokens;
	struct kvw_sources *sources;
	/* counts the memory that clients use; its limit is limits.body_memory */
	struct kvw_account memory;
	struct kvw_metrics *metrics;
	struct kvw_access_log *access_log;
	struct kvw_trace *trace; /* NULL: requests are not traced */
	struct kvw_ledger *ledger; /* NULL: usage is not counted */
	struct kvw_otel_settings tracing;
	struct kvw_otel *otel; /* NULL: no spans are exported */
	struct kvw_status *status; /* pages of the admin address */
	struct kvw_admin *admin;
	struct kvw_proxy *_Atomic proxy; /* atomic, since the control thread reads it, too */
	struct kvw_dry_deps dry;         /* of explainer */
	struct kvw_explainer explainer;  /* the control thread's */
};

/* Waits until the loops have ended. Called by the main thread. */
void kvw_app_wait(struct kvw_app *app);

#endif
