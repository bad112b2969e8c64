# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which fields of a ``config.json`` say something about memory: what is kept of a model's config.

This code is private to the collection ``vllm_runbook.oom``: it may change at any time.
"""

from __future__ import annotations

# Fields that are kept whole: what a quantizer writes has keys of its own.
_WHOLE = frozenset(("quantization_config",))

# What ``architecture`` and the modules under it ask for (a test compares), section by section.
_READ = """
architectures model_type dtype torch_dtype tie_word_embeddings

audio_config audio_encoder_config audio_tower_config attn_config block_configs ffn ffn_config img_processor
language_config language_model linear_attn_config llm_config rope_parameters rope_scaling sound_config
text_config thinker_config transformer_layer_config vision_config vision_tower_config visual vit_config attention

d_model decoder_layers dim hidden_size is_decoder is_encoder_decoder layer_types layers layers_block_type
max_position_embeddings max_seq_len max_seq_length max_sequence_length max_source_positions max_target_positions
model_dim model_max_length n_embd n_layer n_layers n_positions num_hidden_layers num_layers padded_vocab_size
seq_len seq_length vocab_size hidden_size_per_layer_input
draft_vocab_size speculators_model_type target_hidden_size

factor mrope_section original_max_position_embeddings partial_rotary_factor rope_pct rope_type rotary_pct type
full_attention sliding_attention

add_qkv_bias attention_bias attention_chunk_size attention_head_dim attention_k_eq_v attention_out_bias
attn_layer_indices attn_layer_offset attn_layer_period attn_output_gate attn_type_list bias compress_ratios
d_kv decoder_attention_heads decoder_attention_types full_attention_interval global_attn_every_n_layers
global_head_dim head_dim head_dim_v head_size index_head_dim index_n_heads indexer_types kv_channels
kv_lora_rank kv_n_heads max_window_layers mla_use_output_gate multi_query multi_query_group_num n_head n_head_kv n_heads
n_heads_in_group n_kv_heads new_decoder_architecture no_op no_rope_layers num_attention_head
num_attention_heads num_global_key_value_heads num_heads num_key_value_heads num_kv_heads
num_kv_shared_layers num_query_heads o_groups o_lora_rank q_lora_rank qk_layernorm qk_nope_head_dim
qk_rope_head_dim qkv_bias replace_with_linear sliding_window sliding_window_pattern sliding_window_size
use_bias use_qk_norm use_qkv_bias use_sliding_window v_head_dim window_size

conv_L_cache conv_dim conv_kernel d_conv expand hybrid_override_pattern kda_layers linear_conv_kernel_dim
linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim mamba_d_conv
mamba_d_head mamba_d_ssm mamba_d_state mamba_dt_rank mamba_expand mamba_head_dim mamba_intermediate_size
mamba_n_groups mamba_n_heads mamba_ngroups mamba_num_heads mamba_ssm_cache_dtype mamba_ssm_dtype n_groups
n_mamba_heads short_conv_kernel_size ssm_state_size state_size time_step_rank use_full_rank_gate

d_ff decoder_ffn_dim decoder_sparse_step dense_intermediate_size dense_layers enable_moe_block expert_dtype
expert_ffn_hidden_size expert_intermediate_size expert_layer_offset expert_layer_period ffn_dim
ffn_hidden_size ffn_mult first_k_dense_replace hidden_dim interleave_moe_layer_step intermediate_size
intermediate_size_mlp mlp_bias mlp_hidden_act mlp_only_layers moe_ffn_hidden_size moe_intermediate_size moe_k
moe_latent_size moe_layer_freq moe_layer_interval moe_layer_start_index moe_layers moe_num_experts moe_num_shared_experts
moe_shared_expert_intermediate_size moe_top_k moe_topk mtp_num_hidden_layers mtp_num_layers n_inner
n_routed_experts n_shared_experts num_dense_layers num_experts num_experts_per_tok num_experts_per_token
num_local_experts num_mtp_modules num_nextn_predict_layers num_selected_experts num_shared_expert
num_shared_experts routed_expert_hidden_size shared_expert_intermediate_size shared_intermediate_size top_k_experts

conf_num_hidden_layers deepstack_visual_indexes depth embed_dim encoder_ffn_dim encoder_hidden_dim
encoder_layers image_size max_num_tiles mlp_dim mlp_ratio num_global_layers num_position_embeddings out_hidden_size patch_size
spatial_merge_size vt_hidden_size vt_intermediate_size vt_num_hidden_layers width
"""
READ = frozenset(_READ.split())


def sized_config(config):
    """``config`` (a config.json as a dict) with only the fields that sizing reads, in its sections too.

    Fields that are None go as well: they count as not set.
    """
    return {
        key: value if key in _WHOLE else _sized(value)
        for key, value in config.items()
        if (key in READ or key in _WHOLE) and value is not None
    }


def _sized(value):
    if isinstance(value, dict):
        return sized_config(value)
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return [sized_config(item) for item in value]
    return value
