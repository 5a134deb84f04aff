/*
 * app.h - runs the router: makes every part, and takes all down in reverse order.
 */
#ifndef KVW_APP_H
#define KVW_APP_H

#include "config/config.h"
#include "kvway/route.h"

struct kvw_successor; /* takeover/successor.h */

/*
 * Runs the router until SIGTERM or SIGINT has drained it; a second signal ends it at once. SIGHUP
 * reopens the access log and reads the configuration's file again (config_path NULL: there is
 * none). SIGUSR2 starts a successor, which takes over from this process. takeover_from: the running
 * kvway whose sockets are taken over, as in kvw_taker_create; NULL: none. Returns the exit status
 * of the process. The calling thread must have blocked signals before any other thread existed:
 * kvw_app_block_signals.
 */
int kvw_app_run(const struct kvw_config *config, const char *config_path, const char *takeover_from,
	const struct kvw_successor *successor);
void kvw_app_block_signals(void);

#endif
