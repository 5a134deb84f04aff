/*
 * image.h - the compiled kernels: cubins of several devices and PTX for others in one piece of memory.
 */
#ifndef KVT_CUDA_IMAGE_H
#define KVT_CUDA_IMAGE_H

#define KVT_CUDA_KERNEL      "kvt_gpu_move"
#define KVT_CUDA_TURN_KERNEL "kvt_gpu_turn"

/* NULL: this build has no image. Static. */
const void *kvt_cuda_image(void);

#endif
