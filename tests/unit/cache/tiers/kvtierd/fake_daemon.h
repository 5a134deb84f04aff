/*
 * fake_daemon.h - a tiered-storage daemon in a thread, that does what a test wants it to do wrong.
 *
 * Real sockets on loopback, a real shared memory segment. One thread for each connection.
 */
#ifndef FAKE_DAEMON_H
#define FAKE_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_OBJECTS 1024
#define FAKE_PIECES  64

struct fake_object {
	char name[256]; /* "" : none; bucket/key as they came */
	size_t bytes;
	size_t offsets[FAKE_PIECES], lengths[FAKE_PIECES];
	size_t pieces;
};

struct fake_faults {
	_Atomic int late_ms;      /* every answer to a lease comes so late; once this is 0, at once */
	_Atomic int put_late_ms;  /* likewise to a PUT */
	_Atomic int miss_wait_ms; /* a miss waits as long as it is allowed to, at most this */
	_Atomic int close_after;  /* closes without a word after so many requests of a connection */
	_Atomic int drop;         /* so many requests get no answer but a closed connection */
	_Atomic int cut;          /* so many answers end in their middle */
	_Atomic int reset_put;    /* so many PUTs are reset after half of the body */
	_Atomic int lie;          /* so many leases say something else: enum fake_lie */
	_Atomic int lie_times;
	_Atomic int overwrite; /* so many leases: the bytes change right after they are granted */
	_Atomic int status;    /* answered instead of what was asked, status_times times */
	_Atomic int status_times;
	_Atomic int status_verb;   /* of requests that begin with this letter; 0: any */
	_Atomic int fragments;     /* objects are cut into so many pieces */
	_Atomic int can_delete;    /* 1: 200 and 404; 0: 405; 2: 404 for any DELETE */
	_Atomic int has_table;     /* of generations; 0: 404; else 1, or another status */
	_Atomic int chunked;       /* leases are answered in chunked coding */
	_Atomic int garbage;       /* so many answers are not HTTP */
	_Atomic int server;        /* says that it is kvtierd */
	_Atomic int quota;         /* refusals say that a tenant's limit is the cause */
	_Atomic int later;         /* refusals say when to ask again */
	_Atomic int early_refusal; /* so many PUTs are answered 507 before their body */
	_Atomic int number_ids;    /* ids are integers */
};

enum fake_lie {
	FAKE_LIE_NONE,
	FAKE_LIE_BEYOND,   /* an offset beyond the segment */
	FAKE_LIE_OVERFLOW, /* offset and length overflow */
	FAKE_LIE_JSON,     /* not JSON */
	FAKE_LIE_EMPTY,    /* no pieces */
	FAKE_LIE_SHORT,    /* the last piece is a byte too short */
	FAKE_LIE_LONG,     /* ... too long */
	FAKE_LIE_OTHER,    /* another object's pieces */
	FAKE_LIE_TYPE,     /* no JSON by its Content-Type */
	FAKE_LIE_HUGE,     /* an endless list */
	FAKE_LIE_ID,       /* an id that breaks out of the path */
	FAKE_LIE_NEGATIVE, /* a negative length */
};

struct fake_daemon {
	struct fake_faults faults;
	char segment[64]; /* its name */
	uint16_t port;
	/* what tests look at */
	_Atomic int leases, misses, releases, unknown_releases, puts, same, deletes, connections;
	_Atomic int live;   /* leases now */
	_Atomic int late;   /* requests whose answers are late, so far */
	_Atomic int waited; /* ms, before misses were answered */
	_Atomic int live_connections, most_connections;
	/* --- */
	pthread_mutex_t lock; /* guards what follows */
	struct fake_object objects[FAKE_OBJECTS];
	char *map;
	size_t size, used;
	uint64_t next_id;
	char asked[1100]; /* the last question about generations */
	char ids[4096][24]; /* leases that live; "": none */
	int listener, fd;
	pthread_t thread;
	_Atomic bool ending;
	int sockets[256]; /* of connections, -1: none */
	pthread_t threads[256];
	bool started[256];
};

void fake_start(struct fake_daemon *d);
void fake_stop(struct fake_daemon *d); /* the segment is removed */

/* The process is gone and another one comes: connections are reset, nothing is there any more. The
 * port stays. */
void fake_restart(struct fake_daemon *d, bool new_segment);
/* All connections are closed. */
void fake_hang_up(struct fake_daemon *d);
/* The daemon does not listen any more; fake_listen ends that. */
void fake_deafen(struct fake_daemon *d);
void fake_listen(struct fake_daemon *d);
/* A byte of the object whose name contains `text` changes. False: there is none. */
bool fake_damage(struct fake_daemon *d, const char *text, size_t at);
bool fake_has(struct fake_daemon *d, const char *text);
void fake_forget(struct fake_daemon *d, const char *text); /* evicted */
size_t fake_count(struct fake_daemon *d);

#endif
