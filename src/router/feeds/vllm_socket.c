/*
 * vllm_socket.c - opens ZeroMQ sockets to engines, and receives their messages.
 *
 * After a frame beyond KVW_VLLM_PAYLOAD_MAX ZeroMQ closes the connection and opens it again, which
 * shows as a gap. The queue of a SUB socket is as long as vLLM's own; when both overflow, that
 * shows as a gap, too.
 */
#include "feeds/vllm_socket.h"

#include "wire/vllm_events.h"

#define QUEUE_MESSAGES    100000
#define RECONNECT_MS      100
#define RECONNECT_MOST_MS 2000
#define HANDSHAKE_MS      5000
#define CONNECT_MS        5000
#define HEARTBEAT_MS      5000 /* detects a vanished peer */
#define SILENCE_MS        15000

static bool set_int(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

static bool set_bounds(void *socket)
{
	int64_t most = KVW_VLLM_PAYLOAD_MAX;

	return zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof(most)) == 0 &&
	       set_int(socket, ZMQ_RCVHWM, QUEUE_MESSAGES) && set_int(socket, ZMQ_LINGER, 0) &&
	       set_int(socket, ZMQ_IPV6, 1) && set_int(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
	       set_int(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MOST_MS) &&
	       set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) &&
	       set_int(socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS) &&
	       set_int(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) &&
	       set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, SILENCE_MS);
}

/* Returns the socket if good; otherwise closes it and returns NULL with errno preserved. */
static void *keep_if(void *socket, bool good)
{
	int error = zmq_errno();

	if (good || socket == NULL)
		return socket;
	zmq_close(socket);
	errno = error;
	return NULL;
}

void *kvw_vllm_sub(void *context, const char *endpoint, const char *topic)
{
	void *socket = zmq_socket(context, ZMQ_SUB);
	bool good = socket != NULL && set_bounds(socket) &&
		    zmq_setsockopt(socket, ZMQ_SUBSCRIBE, topic, strlen(topic)) == 0;

	return keep_if(socket, good && (endpoint == NULL || zmq_connect(socket, endpoint) == 0));
}

void *kvw_vllm_dealer(void *context, const char *endpoint)
{
	void *socket = zmq_socket(context, ZMQ_DEALER);

	return keep_if(
		socket, socket != NULL && set_bounds(socket) && zmq_connect(socket, endpoint) == 0);
}

bool kvw_vllm_ask(void *dealer, uint64_t first)
{
	uint8_t frame[8];

	kvw_vllm_replay_request(first, frame);
	return zmq_send(dealer, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0 &&
	       zmq_send(dealer, frame, sizeof(frame), ZMQ_DONTWAIT) == (int)sizeof(frame);
}

bool kvw_vllm_receive(void *socket, struct kvw_vllm_frames *message)
{
	zmq_msg_t rest, *frame;
	bool more = true;

	message->count = 0;
	message->bytes = 0;
	while (more) {
		bool kept = message->count < KVW_VLLM_FRAMES_MAX;

		frame = kept ? &message->frames[message->count] : &rest;
		zmq_msg_init(frame);
		if (zmq_msg_recv(frame, socket, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(frame);
			/* ZeroMQ delivers all frames of a message at once */
			return message->count > 0;
		}
		more = zmq_msg_more(frame) != 0;
		message->bytes += zmq_msg_size(frame);
		if (kept)
			message->slices[message->count] =
				(struct kvw_slice){zmq_msg_data(frame), zmq_msg_size(frame)};
		else
			zmq_msg_close(frame);
		message->count++;
	}
	return true;
}

void kvw_vllm_message_finish(struct kvw_vllm_frames *message)
{
	for (size_t i = 0; i < message->count && i < KVW_VLLM_FRAMES_MAX; i++)
		zmq_msg_close(&message->frames[i]);
	message->count = 0;
}
