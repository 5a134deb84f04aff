/*
 * vllm_frames.c - finds topic, sequence and payload among a message's frames.
 *
 * The two replay layouts differ in the number of frames only. No engine reaches the sequence
 * 2^64-1, so a message with it is the end marker or malformed, which the payload decides.
 */
#include "wire/vllm_frames.h"

#define END UINT64_MAX

static bool sequence_of(struct kvw_slice frame, uint64_t *sequence)
{
	uint64_t value = 0;

	if (frame.len != 8)
		return false;
	for (size_t i = 0; i < 8; i++)
		value = value << 8 | (uint8_t)frame.data[i];
	*sequence = value;
	return true;
}

enum kvw_err kvw_vllm_published(
	const struct kvw_slice *frames, size_t count, struct kvw_vllm_message *message)
{
	uint64_t sequence;

	if (count != 3 || !sequence_of(frames[1], &sequence) || sequence == END)
		return KVW_EPROTO;
	*message = (struct kvw_vllm_message){frames[0], sequence, frames[2]};
	return KVW_OK;
}

void kvw_vllm_replay_request(uint64_t first, uint8_t frame[8])
{
	for (int i = 0; i < 8; i++)
		frame[i] = (uint8_t)(first >> (56 - 8 * i));
}

enum kvw_err kvw_vllm_replayed(
	const struct kvw_slice *frames, size_t count, struct kvw_vllm_message *message)
{
	struct kvw_slice topic = {0};
	uint64_t sequence;

	if ((count != 3 && count != 4) || frames[0].len != 0 ||
		!sequence_of(frames[count - 2], &sequence))
		return KVW_EPROTO;
	if (sequence == END)
		return frames[count - 1].len == 0 ? KVW_ENOTFOUND : KVW_EPROTO;
	if (count == 4)
		topic = frames[1];
	*message = (struct kvw_vllm_message){topic, sequence, frames[count - 1]};
	return KVW_OK;
}
