/*
 * header_cpp_test.cc - the public header alone, as C++17; a program over libkvtier.so.
 */
#include "kvtier/kvtier_cuda.h"

int main()
{
	kvt_gpu_config config{};
	kvt_gpu_layout layout{};
	kvt_gpu *g = nullptr;

	kvt_gpu_config_init(&config, sizeof(config));
	layout.size = sizeof(layout);
	return kvt_gpu_create(&config, &layout, &g) == KVT_EINVAL && g == nullptr ? 0 : 1;
}
