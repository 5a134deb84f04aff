/*
 * app.h - the router as a whole: every part, made and taken down in order.
 */
#ifndef KVW_APP_H
#define KVW_APP_H

#include "config/config.h"
#include "kvway/route.h"

struct kvw_successor; /* takeover/successor.h */

/*
 * Runs the router until SIGTERM or SIGINT has drained it; a second one ends it at once. SIGHUP
 * reopens the access log and reads the configuration's file again (config_path NULL: there is
 * none). SIGUSR2 starts the successor, which takes over from this process. takeover_from: the
 * running kvway whose sockets to take over, as in kvw_taker_create; NULL: none. Returns the exit
 * status of the process. Signals must be blocked in the calling thread, before any other thread
 * exists: kvw_app_block_signals.
 */
int kvw_app_run(const struct kvw_config *config, const char *config_path, const char *takeover_from,
	const struct kvw_successor *successor);
void kvw_app_block_signals(void);

#endif
