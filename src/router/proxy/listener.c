/*
 * listener.c - what a loop does with the clients that its acceptor brings.
 */
#include "proxy/listener.h"

#include "proxy/loop.h"
#include "proxy/receive.h"

static struct kvw_loop *loop_of(struct kvw_acceptor *acceptor)
{
	return (struct kvw_loop *)((char *)acceptor - offsetof(struct kvw_loop, acceptor));
}

static void begin(struct kvw_acceptor *acceptor)
{
	loop_of(acceptor)->now_ns = kvw_clock_ns();
}

static bool admit(struct kvw_acceptor *acceptor)
{
	return kvw_shared_connection_take(loop_of(acceptor)->shared);
}

static void serve_take(struct kvw_acceptor *acceptor, int fd, const struct sockaddr *peer)
{
	kvw_receive_client_take(loop_of(acceptor), fd, peer);
}

/* In OpenAI's form; under TLS nothing can be said before a handshake. */
static void refuse_take(struct kvw_acceptor *acceptor, int fd, enum kvw_refusal why)
{
	static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\n"
				     "content-type: application/json\r\nretry-after: 1\r\n"
				     "connection: close\r\ncontent-length: 110\r\n\r\n"
				     "{\"error\":{\"message\":\"limits.connections is reached\","
				     "\"type\":\"ServiceUnavailableError\",\"param\":null,\"code\":503}}";
	struct kvw_loop *loop = loop_of(acceptor);

	(void)why;
	if (loop->tls == NULL)
		(void)!write(fd, answer, sizeof(answer) - 1);
	close(fd);
	kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_REFUSED, 1);
}

const struct kvw_acceptor_ops kvw_listener_ops = {
	.begin = begin,
	.admit = admit,
	.serve_take = serve_take,
	.refuse_take = refuse_take,
};
