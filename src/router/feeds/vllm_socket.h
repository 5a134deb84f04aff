/*
 * vllm_socket.h - ZeroMQ sockets to and from engines, with limits for untrusted peers, and their
 * messages as frames.
 */
#ifndef KVW_VLLM_SOCKET_H
#define KVW_VLLM_SOCKET_H

#include <stdbool.h>

#include <zmq.h>

#include "kvway/err.h"
#include "wire/vllm_frames.h"

/* Makes a SUB socket that connects to the endpoint; NULL: to none yet. Returns NULL on failure;
 * errno is zmq_errno(). */
void *kvw_vllm_sub(void *context, const char *endpoint, const char *topic);

/* Makes a DEALER socket that connects. Fails like kvw_vllm_sub. */
void *kvw_vllm_dealer(void *context, const char *endpoint);

/* Requests a replay of all batches from `first` on. False: the socket cannot take the request
 * now. */
bool kvw_vllm_ask(void *dealer, uint64_t first);

/* A message of one or more frames; released by kvw_vllm_message_finish. */
struct kvw_vllm_frames {
	zmq_msg_t frames[KVW_VLLM_FRAMES_MAX];
	struct kvw_slice slices[KVW_VLLM_FRAMES_MAX];
	size_t count; /* number of frames; above KVW_VLLM_FRAMES_MAX the others were discarded */
	size_t bytes; /* size of all frames together */
};

/* Receives a message. False: none. */
bool kvw_vllm_receive(void *socket, struct kvw_vllm_frames *message);
void kvw_vllm_message_finish(struct kvw_vllm_frames *message);

#endif
