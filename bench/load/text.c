/* text.c - prompt text made from numbers. Cost: one random number per eight words. */
#include "bench/load/text.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* 128 words: seven bits choose one. */
static const char words[KVB_TEXT_WORDS][4] = {"the", "and", "for", "are", "but", "not", "you",
	"all", "any", "can", "had", "her", "was", "one", "our", "out", "day", "get", "has", "him",
	"his", "how", "man", "new", "now", "old", "see", "two", "way", "who", "boy", "did", "its",
	"let", "put", "say", "she", "too", "use", "dad", "mom", "act", "add", "age", "ago", "air",
	"arm", "art", "ask", "bad", "bag", "bar", "bed", "big", "bit", "box", "bus", "buy", "car",
	"cat", "cut", "dog", "dry", "due", "ear", "eat", "egg", "end", "eye", "far", "few", "fit",
	"fly", "fun", "gas", "god", "got", "gun", "hit", "hot", "ice", "job", "key", "kid", "law",
	"lay", "led", "leg", "lie", "lot", "low", "map", "may", "men", "met", "mix", "net", "nor",
	"off", "oil", "own", "pay", "per", "pop", "ran", "red", "rid", "row", "run", "sat", "sea",
	"set", "sit", "six", "sky", "son", "sun", "tax", "tea", "ten", "tie", "top", "try", "war",
	"wet", "win", "yes", "yet"};

const char *kvb_text_word(uint32_t i)
{
	return words[i];
}

uint64_t kvb_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

double kvb_random_unit(uint64_t *state)
{
	return (double)(kvb_random(state) >> 11) * 0x1p-53;
}

double kvb_random_exponential(uint64_t *state, double mean)
{
	return -mean * log1p(-kvb_random_unit(state));
}

void kvb_text_add(struct kvb_buf *buf, uint64_t id, size_t bytes)
{
	uint64_t state = id * UINT64_C(0xd1342543de82ef95) + 1;

	while (bytes > 0) {
		uint64_t bits = kvb_random(&state);
		char piece[32];
		size_t len = bytes < sizeof(piece) ? bytes : sizeof(piece);

		for (size_t i = 0; i < 8; i++, bits >>= 8) {
			memcpy(piece + 4 * i, words[bits & 127], 3);
			piece[4 * i + 3] = ' ';
		}
		kvb_buf_add(buf, piece, len);
		bytes -= len;
	}
}

void kvb_text_add_blocks(struct kvb_buf *buf, const struct kvb_blocks *blocks)
{
	size_t block_bytes = (size_t)((double)blocks->block_tokens * blocks->bytes_per_token);
	size_t left = (size_t)((double)blocks->tokens * blocks->bytes_per_token);

	for (size_t i = 0; i < blocks->id_count && left > 0; i++) {
		bool last = i + 1 == blocks->id_count;
		size_t bytes = last || left < block_bytes ? left : block_bytes;

		/* Ids are spread out so that small ones do not meet other users of text ids. */
		kvb_text_add(buf, blocks->ids[i] ^ UINT64_C(0x6b76776179000000), bytes);
		left -= bytes;
	}
}
