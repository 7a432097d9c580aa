#!/bin/bash
# A pretraining script as people write it for Megatron-LM; nothing of it is run here.
GPUS_PER_NODE=4
CHECKPOINTS=${CHECKPOINTS:-checkpoints}

MODEL_ARGS=(
    --num-layers 4
    --hidden-size 64
    --num-attention-heads 8
    --group-query-attention --num-query-groups 4
    --seq-length 64 --max-position-embeddings 4096
    --position-embedding-type rope
    --normalization RMSNorm --norm-epsilon 1e-6
    --swiglu --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
    --mtp-num-layers 1
)
MOE_ARGS=(
    --num-experts 8
    --moe-ffn-hidden-size 32
    --moe-layer-freq "([0]*1+[1]*3)"
    --moe-router-topk 2
    --moe-aux-loss-coeff 1e-2
    --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 8
    --train-iters 500
    --bf16
    --lr 6.0e-4 --min-lr 6.0e-5
    --lr-decay-style cosine --lr-warmup-iters 20
    --weight-decay 0.1 --adam-beta2 0.95
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 2
    --expert-model-parallel-size 2 --expert-tensor-parallel-size 1
    --sequence-parallel
)
DATA_ARGS=(--mock-data --vocab-size 250)
LOG_ARGS=(--log-interval 10 --save $CHECKPOINTS --load $CHECKPOINTS --tensorboard-dir $1)

torchrun --nproc_per_node $GPUS_PER_NODE --nnodes 1 pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${MOE_ARGS[@]}" "${TRAINING_ARGS[@]}" \
    "${PARALLEL_ARGS[@]}" "${DATA_ARGS[@]}" "${LOG_ARGS[@]}"
