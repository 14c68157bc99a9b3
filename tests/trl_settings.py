"""What every trainer of TRL is told: no files, no reports, no recomputation, plain float32."""

PLAIN = {
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "logging_strategy": "no",
}
