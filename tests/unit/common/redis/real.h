/*
 * real.h - a redis-server of the test's own, in a temporary folder, on free ports and a Unix socket.
 */
#ifndef KVW_REDIS_REAL_H
#define KVW_REDIS_REAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct real {
	char folder[64];
	char socket[96]; /* its Unix socket */
	uint16_t port;   /* plain; 0: not listened to */
	uint16_t tls_port;
	int kept[2]; /* sockets that keep both ports */
	pid_t pid;
	char arguments[1024]; /* further ones, between spaces */
};

/* Is there a redis-server on this machine, one that knows TLS? */
bool real_exists(void);

void real_init(struct real *s);         /* makes the folder and takes ports */
void real_certificates(struct real *s); /* in folder: ca.pem, other.pem, server.pem (localhost and
					 * 127.0.0.2), elsewhere.pem, client.pem, each with its .key */
void real_start(struct real *s, bool tls); /* returns when it listens */
void real_stop(struct real *s);            /* SIGKILL */
void real_finish(struct real *s);          /* and removes the folder */

#endif
