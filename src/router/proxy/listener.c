/*
 * listener.c - what a loop does with the clients that its acceptor brings.
 */
#include "proxy/listener.h"

#include "base/log.h"
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

#define REFUSAL(length, message)                                                                   \
	"HTTP/1.1 503 Service Unavailable\r\n"                                                     \
	"content-type: application/json\r\nretry-after: 1\r\n"                                     \
	"connection: close\r\ncontent-length: " length "\r\n\r\n"                                  \
	"{\"error\":{\"message\":\"" message "\","                                                 \
	"\"type\":\"ServiceUnavailableError\",\"param\":null,\"code\":503}}"

static void starved(struct kvw_acceptor *acceptor)
{
	struct kvw_loop *loop = loop_of(acceptor);

	kvw_metrics_add(loop->metrics, KVW_COUNT_OUT_OF_DESCRIPTORS, 1);
	if (kvw_shared_lacks(loop->shared, loop->now_ns))
		kvw_warn("proxy",
			"no descriptor is left for a client: refused until others have gone; raise the limit "
			"(ulimit -n, LimitNOFILE)");
}

/* In OpenAI's form; under TLS nothing can be said before a handshake. */
static void refuse_take(struct kvw_acceptor *acceptor, int fd, enum kvw_refusal why)
{
	static const char limited[] = REFUSAL("110", "limits.connections is reached");
	static const char shed[] = REFUSAL("102", "no descriptor is left");
	struct kvw_loop *loop = loop_of(acceptor);

	if (why == KVW_REFUSED_DESCRIPTORS)
		starved(acceptor);
	if (loop->tls == NULL && why == KVW_REFUSED_DESCRIPTORS)
		(void)!write(fd, shed, sizeof(shed) - 1);
	else if (loop->tls == NULL)
		(void)!write(fd, limited, sizeof(limited) - 1);
	close(fd);
	kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_REFUSED, 1);
}

const struct kvw_acceptor_ops kvw_listener_ops = {
	.begin = begin,
	.admit = admit,
	.serve_take = serve_take,
	.refuse_take = refuse_take,
	.starved = starved,
};
