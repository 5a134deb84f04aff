/*
 * sim_http_conn.h - a connection, as the files of the server share it: sim_http.c creates and frees
 * connections, sim_http_in.c reads requests, sim_http_out.c writes answers and executes faults.
 */
#ifndef KVB_SIM_HTTP_CONN_H
#define KVB_SIM_HTTP_CONN_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <llhttp.h>
#include <sys/queue.h>

#include "bench/sim/sim_http.h"

enum kvb_conn_state {
	KVB_CONN_READING, /* between two requests, or while a request arrives */
	KVB_CONN_BUSY,    /* a request was read completely, and its answer is not complete */
	KVB_CONN_CLOSING, /* ends when the buffered bytes have been written */
	KVB_CONN_DEAD     /* closed, and waits to be freed */
};

/* The purposes of the connection's one timer. */
enum kvb_conn_timer { KVB_TIMER_NONE, KVB_TIMER_DELAY, KVB_TIMER_SPLIT, KVB_TIMER_CUT };

/* The ways in which a fault ends a connection whose answer was cut short. */
enum kvb_conn_cut { KVB_CUT_NONE, KVB_CUT_HANG, KVB_CUT_CLOSE, KVB_CUT_RESET };

TAILQ_HEAD(kvb_conn_list, kvb_conn);

struct kvb_conn {
	struct kvb_http *http;
	TAILQ_ENTRY(kvb_conn) all;  /* entry of http->conns or of http->dead */
	TAILQ_ENTRY(kvb_conn) idle; /* entry of http->idle while is_idle */
	int fd;
	enum kvb_conn_state state;
	enum kvb_conn_cut cut;
	enum kvb_conn_timer timer_for;
	bool is_idle, keep_alive, feeding, early, broken, chunked, watching_close;
	bool too_large;
	struct event ev_read, ev_write, ev_timer;
	llhttp_t parser;

	struct kvb_request request;
	struct kvb_buf target, headers, body;
	struct kvb_buf pending; /* input that came while a request was being answered */
	struct kvb_fail fail;
	/* the worker's object; NULL: `gone` is not called when the connection ends */
	void *exchange;

	struct kvb_buf out;
	size_t out_pos;          /* number of bytes of `out` that are written already */
	uint64_t content_events; /* events with content in the current stream */
	uint64_t served;         /* number of completed answers */
	int64_t idle_ns;         /* when it became idle */
};

struct kvb_http {
	struct event_base *base;
	struct kvb_http_config config;
	const struct kvb_http_ops *ops;
	void *user;
	int fd;
	uint16_t port;
	struct event *ev_accept, *ev_idle, *ev_reap;
	struct kvb_conn_list conns, idle, dead;
	llhttp_settings_t settings;
	uint64_t accepted;
	uint32_t open;
	char *scratch;  /* owned; buffer for one read */
	int64_t date_s; /* second of `date` */
	char date[80];
	uint64_t id_state; /* for x-request-id */
};

/* sim_http.c */
/* closes it, calls `gone`, puts it on http->dead */
void kvb_conn_end(struct kvb_conn *conn, bool reset);
void kvb_conn_idle(struct kvb_conn *conn); /* makes it idle, between two requests */
void kvb_conn_busy(struct kvb_conn *conn);                     /* no longer */
void kvb_conn_watch(struct kvb_conn *conn, bool closing_only); /* or input too */

/* sim_http_in.c */
void kvb_http_set_callbacks(struct kvb_http *http);
/* Reads requests until the input ends or a request has to wait; the rest is kept. */
void kvb_conn_feed(struct kvb_conn *conn, const char *data, size_t len);
void kvb_conn_dispatch(struct kvb_conn *conn); /* passes the request to the worker */
void kvb_conn_ready(struct kvb_conn *conn);    /* answer complete: next request */

/* sim_http_out.c */
void kvb_conn_flush(struct kvb_conn *conn);
void kvb_conn_timer_fired(struct kvb_conn *conn);
void kvb_conn_set_timer(struct kvb_conn *conn, enum kvb_conn_timer what, int64_t ms);
/* Executes the faults that come before any answer. Returns true if the worker must not get the
 * request. */
bool kvb_conn_play_faults(struct kvb_conn *conn);
void kvb_conn_reply_error(struct kvb_conn *conn, int status, const char *message);

#endif
