/*
 * listener.c - a loop's listening sockets, and the clients that they bring.
 *
 * A loop that opens its own socket has one. A process that took sockets over has as many as the
 * process before it, which may have had more loops: each of them must be served, since the kernel
 * spreads new clients over all sockets of an address.
 */
#include "proxy/listener.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "proxy/loop.h"
#include "proxy/receive.h"

static struct kvw_loop *loop_of_acceptor(struct kvw_acceptor *acceptor)
{
	return ((struct kvw_listener *)acceptor)->loop; /* the acceptor is its first member */
}

static void begin_accepting(struct kvw_acceptor *acceptor)
{
	loop_of_acceptor(acceptor)->now_ns = kvw_clock_ns();
}

static bool admit_connection(struct kvw_acceptor *acceptor)
{
	return kvw_shared_connection_take(loop_of_acceptor(acceptor)->shared);
}

static void serve_connection(struct kvw_acceptor *acceptor, int fd, const struct sockaddr *peer)
{
	kvw_receive_client_take(loop_of_acceptor(acceptor), fd, peer);
}

#define REFUSAL(length, message)                                                                   \
	"HTTP/1.1 503 Service Unavailable\r\n"                                                     \
	"content-type: application/json\r\nretry-after: 1\r\n"                                     \
	"connection: close\r\ncontent-length: " length "\r\n\r\n"                                  \
	"{\"error\":{\"message\":\"" message "\","                                                 \
	"\"type\":\"ServiceUnavailableError\",\"param\":null,\"code\":503}}"

static void starved(struct kvw_acceptor *acceptor)
{
	struct kvw_loop *loop = loop_of_acceptor(acceptor);

	kvw_metrics_add(loop->metrics, KVW_COUNT_OUT_OF_DESCRIPTORS, 1);
	if (kvw_shared_lacks(loop->shared, loop->now_ns))
		kvw_warn("proxy", "no descriptor is left for a client: refused until others have "
				  "gone; raise the limit "
				  "(ulimit -n, LimitNOFILE)");
}

/* Refuses a connection in OpenAI's form; under TLS no answer is possible before a handshake. */
static void refuse_connection(struct kvw_acceptor *acceptor, int fd, enum kvw_refusal why)
{
	static const char limited[] = REFUSAL("110", "limits.connections is reached");
	static const char shed[] = REFUSAL("102", "no descriptor is left");
	struct kvw_loop *loop = loop_of_acceptor(acceptor);

	if (why == KVW_REFUSED_DESCRIPTORS)
		starved(acceptor);
	kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_REFUSED, 1);
	if (loop->tls == NULL && why == KVW_REFUSED_DESCRIPTORS)
		(void)!write(fd, shed, sizeof(shed) - 1);
	else if (loop->tls == NULL)
		(void)!write(fd, limited, sizeof(limited) - 1);
	close(fd);
}

static const struct kvw_acceptor_ops ops = {
	.begin = begin_accepting,
	.admit = admit_connection,
	.serve_take = serve_connection,
	.refuse_take = refuse_connection,
	.starved = starved,
};

enum kvw_err kvw_listeners_init(struct kvw_loop *loop, const int *fds, size_t count)
{
	loop->listeners = calloc(count, sizeof(loop->listeners[0]));
	if (loop->listeners == NULL) {
		for (size_t i = 0; i < count; i++)
			close(fds[i]);
		return KVW_ENOMEM;
	}
	for (loop->listener_count = 0; loop->listener_count < count; loop->listener_count++) {
		struct kvw_listener *listener = &loop->listeners[loop->listener_count];

		kvw_acceptor_init(&listener->acceptor, &ops, fds[loop->listener_count]);
		kvw_acceptor_share(&listener->acceptor, &loop->shared->reserve);
		listener->loop = loop;
	}
	return KVW_OK;
}

enum kvw_err kvw_listeners_watch(struct kvw_loop *loop)
{
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < loop->listener_count && err == KVW_OK; i++)
		err = kvw_acceptor_watch(&loop->listeners[i].acceptor, &loop->sockets);
	return err;
}

void kvw_listeners_run(struct kvw_loop *loop)
{
	for (size_t i = 0; i < loop->listener_count; i++)
		kvw_acceptor_run(&loop->listeners[i].acceptor);
}

void kvw_listeners_tick(struct kvw_loop *loop)
{
	for (size_t i = 0; i < loop->listener_count; i++)
		kvw_acceptor_tick(&loop->listeners[i].acceptor);
}

void kvw_listeners_stop(struct kvw_loop *loop)
{
	for (size_t i = 0; i < loop->listener_count; i++)
		kvw_acceptor_stop(&loop->listeners[i].acceptor);
}

void kvw_listeners_finish(struct kvw_loop *loop)
{
	for (size_t i = 0; i < loop->listener_count; i++)
		kvw_acceptor_finish(&loop->listeners[i].acceptor);
	free(loop->listeners);
	loop->listeners = NULL;
	loop->listener_count = 0;
}
