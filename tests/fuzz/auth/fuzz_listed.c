/*
 * fuzz_listed.c - any bytes as a request's target: the lists of paths that it is on.
 *
 * Percent-escapes decoded once, no path that is listed has a segment `.` or `..`, or a slash that was encoded; and
 * it stands in the list as it is written, but for escapes and repeated slashes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "openai/api_path.h"
#include "tests/fuzz/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const all[] = {"/*"};

static int hex(uint8_t c)
{
	const char digits[] = "0123456789abcdef";
	const char *at = c == 0 ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c);

	return at == NULL ? -1 : (int)(at - digits);
}

/* Slowly, and in another way than the router: one segment after another. */
static bool winds(const uint8_t *path, size_t size)
{
	char segment[4] = {0};
	size_t len = 0;

	for (size_t i = 0; i <= size; i++) {
		bool ends = i == size || strchr("/?#", path[i]) != NULL;
		int c = ends ? 0 : path[i];

		if (i < size && path[i] == 0)
			ends = false;
		if (!ends && c == '%' && i + 2 < size && hex(path[i + 1]) >= 0 && hex(path[i + 2]) >= 0) {
			c = hex(path[i + 1]) * 16 + hex(path[i + 2]);
			i += 2;
			if (c == '/')
				return true;
		}
		if (!ends) {
			if (len < 3)
				segment[len] = (char)c;
			len++;
			continue;
		}
		if ((len == 1 && segment[0] == '.') || (len == 2 && segment[0] == '.' && segment[1] == '.'))
			return true;
		if (i < size && path[i] != '/')
			return false;
		len = 0;
	}
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_slice target = {(const char *)data, size};
	bool listed = kvw_path_listed(target, all, 1) ||
		      kvw_path_listed(target, kvw_inference_paths, kvw_inference_path_count);

	if (size > 0 && data[0] == '/') {
		require(kvw_path_straight(target) == !winds(data, size));
		require(!listed || !winds(data, size));
	}
	require(!listed || kvw_path_straight(target));
	return 0;
}
