/*
 * notify.h - messages of a program to the service manager that started it (sd_notify of systemd).
 *
 * A message is a datagram to the socket that $NOTIFY_SOCKET names. Without that variable the
 * functions do nothing.
 *
 * Threads: any, while none changes the environment.
 */
#ifndef KVW_NOTIFY_H
#define KVW_NOTIFY_H

#include <stddef.h>
#include <stdint.h>

/* Sends "READY=1", "STOPPING=1" or "WATCHDOG=1"; several lines are one message. A failure is not
 * reported: the service manager notices that the message is missing. */
void kvw_notify(const char *state);

/* Asks the manager to keep copies of these descriptors, and to pass them to the next process under
 * this name if this one crashes. "FDSTOREREMOVE=1\nFDNAME=name" removes them. */
void kvw_notify_store(const char *name, const int *fds, size_t count);

/* Announces a reload; READY=1 announces its end. */
void kvw_notify_reloading(void);

/* Returns the manager's timeout for the next WATCHDOG=1 ($WATCHDOG_USEC); 0: there is no
 * watchdog. */
int64_t kvw_notify_watchdog_ns(void);

#endif
