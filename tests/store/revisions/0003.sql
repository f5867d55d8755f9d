BEGIN TRANSACTION;
CREATE TABLE tuner_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT tuner_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "tuner_alembic_version" VALUES('0003');
CREATE TABLE tuner_claim (
	problem_key VARCHAR(16) NOT NULL, 
	device_key VARCHAR(16) NOT NULL, 
	stack_key VARCHAR(16) NOT NULL, 
	config_key VARCHAR(16) NOT NULL, 
	variant_id VARCHAR(64) NOT NULL, 
	run_id INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuner_claim PRIMARY KEY (problem_key, device_key, stack_key, config_key, variant_id), 
	CONSTRAINT fk_tuner_claim_run_id FOREIGN KEY(run_id) REFERENCES tuner_run (id)
);
CREATE TABLE tuner_device (
	"key" VARCHAR(16) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	backend VARCHAR(20) NOT NULL, 
	arch VARCHAR(20) NOT NULL, 
	data JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuner_device PRIMARY KEY ("key")
);
INSERT INTO "tuner_device" VALUES('c5a9eb5e9ce993b4','NVIDIA H200','cuda','90','{"name":"NVIDIA H200","backend":"cuda","arch":90,"warp_size":32,"sms":132,"memory_bytes":150000000000,"l2_bytes":62914560,"shared_bytes_per_block":232448,"shared_bytes_per_sm":233472,"registers_per_block":65536,"registers_per_sm":65536,"threads_per_block":1024,"threads_per_sm":2048,"memory_bandwidth":0.0,"tensor_flops":0.0,"fp32_flops":0.0,"exp2_rate":0.0}','2026-11-30 19:50:17.605444');
CREATE TABLE tuner_measurement (
	id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	digest VARCHAR(32) NOT NULL, 
	stage VARCHAR(20) NOT NULL, 
	protocol VARCHAR(60) NOT NULL, 
	median_us DOUBLE NOT NULL, 
	low_us DOUBLE NOT NULL, 
	high_us DOUBLE NOT NULL, 
	sample_count INTEGER NOT NULL, 
	samples_us JSON NOT NULL, 
	rounds JSON NOT NULL, 
	processes JSON NOT NULL, 
	states JSON NOT NULL, 
	notes JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuner_measurement PRIMARY KEY (id), 
	CONSTRAINT uq_tuner_measurement_content UNIQUE (trial_id, digest), 
	CONSTRAINT fk_tuner_measurement_trial_id FOREIGN KEY(trial_id) REFERENCES tuner_trial (id)
);
INSERT INTO "tuner_measurement" VALUES(1,1,'fe81abf95cd834a9759b6b1f779f72c9','screen','timer-1',10.2,10.1,1.04333333333333335703e+01,3,'[10.1,10.2,10.433333333333334]','[0,0,1]','[11,11,12]','[{"sm_clock_mhz":1980,"memory_clock_mhz":3201,"temperature_c":45,"power_w":512.5,"throttle_reasons":["power_cap"]}]','["L2 cleared"]','2026-11-30 19:50:17.628549');
INSERT INTO "tuner_measurement" VALUES(2,2,'54eedbd4b6d9ca3856f0947b0c83a3dc','screen','timer-1',12.6,12.5,1.2833333333333333925e+01,3,'[12.5,12.6,12.833333333333334]','[0,0,1]','[11,11,12]','[{"sm_clock_mhz":1980,"memory_clock_mhz":3201,"temperature_c":45,"power_w":512.5,"throttle_reasons":["power_cap"]}]','["L2 cleared"]','2026-11-30 19:50:17.633608');
INSERT INTO "tuner_measurement" VALUES(3,1,'695ede6e715c96d2e619d89166ce066b','final','timer-1',9.1,9.0,9.33333333333333392545e+00,3,'[9.0,9.1,9.333333333333334]','[0,0,1]','[11,11,12]','[{"sm_clock_mhz":1980,"memory_clock_mhz":3201,"temperature_c":45,"power_w":512.5,"throttle_reasons":["power_cap"]}]','["L2 cleared"]','2026-11-30 19:50:17.639492');
INSERT INTO "tuner_measurement" VALUES(4,5,'8a1edda7ed408fe2eecf87807483b2e1','screen','timer-1',7.1,7.0,7.33333333333333303727e+00,3,'[7.0,7.1,7.333333333333333]','[0,0,1]','[11,11,12]','[{"sm_clock_mhz":1980,"memory_clock_mhz":3201,"temperature_c":45,"power_w":512.5,"throttle_reasons":["power_cap"]}]','["L2 cleared"]','2026-11-30 19:50:17.650543');
CREATE TABLE tuner_problem (
	"key" VARCHAR(16) NOT NULL, 
	operator VARCHAR(100) NOT NULL, 
	label TEXT NOT NULL, 
	shape JSON NOT NULL, 
	dtype VARCHAR(10) NOT NULL, 
	options JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuner_problem PRIMARY KEY ("key")
);
INSERT INTO "tuner_problem" VALUES('4c9ca44e0a3cae2a','softmax','softmax rows=4096 cols=1024 bf16','{"rows":4096,"cols":1024}','bf16','{"row_stride":null}','2026-11-30 19:50:17.605444');
CREATE TABLE tuner_run (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	pid INTEGER NOT NULL, 
	start VARCHAR(40) NOT NULL, 
	started_at DATETIME NOT NULL, 
	heartbeat_at DATETIME NOT NULL, 
	lost_at DATETIME, 
	wall_s DOUBLE NOT NULL, 
	gpu_busy_s DOUBLE NOT NULL, 
	CONSTRAINT pk_tuner_run PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_run_study_id FOREIGN KEY(study_id) REFERENCES tuner_study (id)
);
INSERT INTO "tuner_run" VALUES(1,3,'a-host',15280,'4128040','2026-11-30 19:50:17.656973','2026-11-30 19:50:17.659096',NULL,2.5,1.5);
CREATE TABLE tuner_space (
	digest VARCHAR(64) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	text TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuner_space PRIMARY KEY (digest)
);
INSERT INTO "tuner_space" VALUES('aaaaaabbbbbbcccc','softmax','operator: softmax
','2026-11-30 19:50:17.605444');
INSERT INTO "tuner_space" VALUES('another','softmax','operator: softmax
','2026-11-30 19:50:17.655536');
CREATE TABLE tuner_stack (
	"key" VARCHAR(16) NOT NULL, 
	mode VARCHAR(10) NOT NULL, 
	label VARCHAR(200) NOT NULL, 
	triton VARCHAR(60) NOT NULL, 
	torch VARCHAR(60) NOT NULL, 
	driver VARCHAR(60) NOT NULL, 
	data JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuner_stack PRIMARY KEY ("key")
);
INSERT INTO "tuner_stack" VALUES('30b0b178683de33e','measured','Triton 3.6.0, torch 2.11.0, driver 580.159','3.6.0','2.11.0','580.159','{"mode":"measured","triton":"3.6.0","torch":"2.11.0","compiler":"ptxas 13.0","driver":"580.159","runtime":"13.0","settings":{"TRITON_F32_DEFAULT":"ieee"}}','2026-11-30 19:50:17.605444');
INSERT INTO "tuner_stack" VALUES('b348773ace2cc6a2','estimated','Triton 3.6.0, torch 2.11.0','3.6.0','2.11.0','','{"mode":"estimated","triton":"3.6.0","torch":"2.11.0","compiler":"ptxas 13.0","driver":"","runtime":"","settings":{}}','2026-11-30 19:50:17.646779');
CREATE TABLE "tuner_study" (
	id INTEGER NOT NULL, 
	uid VARCHAR(32) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	problem_key VARCHAR(16) NOT NULL, 
	device_key VARCHAR(16) NOT NULL, 
	stack_key VARCHAR(16) NOT NULL, 
	space_digest VARCHAR(64) NOT NULL, 
	mode VARCHAR(10) NOT NULL, 
	sampler VARCHAR(60) NOT NULL, 
	seed BIGINT NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	max_trials INTEGER, 
	max_seconds DOUBLE, 
	protocol VARCHAR(60) NOT NULL, 
	space_size BIGINT, 
	optuna_name VARCHAR(200) NOT NULL, 
	wall_s DOUBLE NOT NULL, 
	gpu_busy_s DOUBLE NOT NULL, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	CONSTRAINT pk_tuner_study PRIMARY KEY (id), 
	CONSTRAINT fk_tuner_study_problem_key FOREIGN KEY(problem_key) REFERENCES tuner_problem ("key"), 
	CONSTRAINT fk_tuner_study_device_key FOREIGN KEY(device_key) REFERENCES tuner_device ("key"), 
	CONSTRAINT fk_tuner_study_stack_key FOREIGN KEY(stack_key) REFERENCES tuner_stack ("key"), 
	CONSTRAINT fk_tuner_study_space_digest FOREIGN KEY(space_digest) REFERENCES tuner_space (digest), 
	CONSTRAINT uq_tuner_study_uid UNIQUE (uid), 
	CONSTRAINT uq_tuner_study_name UNIQUE (name), 
	CONSTRAINT uq_tuner_study_identity UNIQUE (problem_key, device_key, stack_key, space_digest, mode)
);
INSERT INTO "tuner_study" VALUES(1,'d7099517ef2e477885609cef17a194d4','softmax-4c9ca44e-nvidia-h200-aaaaaa','4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','30b0b178683de33e','aaaaaabbbbbbcccc','measured','tpe',1099511627776,'finished',200,60.0,'timer-1',10000000000,'softmax-4c9ca44e-nvidia-h200-aaaaaa',12.0,6.0,'2026-11-30 19:50:17.605444','2026-11-30 19:50:17.645272','2026-11-30 19:50:17.645272');
INSERT INTO "tuner_study" VALUES(2,'0583ff1c76df43f6bb5afbc8835d482c','softmax-4c9ca44e-nvidia-h200-estimated-aaaaaa','4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','b348773ace2cc6a2','aaaaaabbbbbbcccc','estimated','tpe',1099511627776,'interrupted',200,60.0,'timer-1',10000000000,'softmax-4c9ca44e-nvidia-h200-estimated-aaaaaa',3.0,0.0,'2026-11-30 19:50:17.646779','2026-11-30 19:50:17.654541',NULL);
INSERT INTO "tuner_study" VALUES(3,'2371d2c3b4464fa3a3e0e738e67c9696','softmax-4c9ca44e-nvidia-h200-anothe','4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','30b0b178683de33e','another','measured','tpe',1099511627776,'running',200,60.0,'timer-1',10000000000,'softmax-4c9ca44e-nvidia-h200-anothe',2.5,1.5,'2026-11-30 19:50:17.655536','2026-11-30 19:50:17.658008',NULL);
CREATE TABLE tuner_study_trial (
	study_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	ordinal INTEGER NOT NULL, 
	reused BOOLEAN NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuner_study_trial PRIMARY KEY (study_id, trial_id), 
	CONSTRAINT uq_tuner_study_trial_ordinal UNIQUE (study_id, ordinal), 
	CONSTRAINT fk_tuner_study_trial_study_id FOREIGN KEY(study_id) REFERENCES tuner_study (id), 
	CONSTRAINT fk_tuner_study_trial_trial_id FOREIGN KEY(trial_id) REFERENCES tuner_trial (id)
);
INSERT INTO "tuner_study_trial" VALUES(1,1,0,0,'2026-11-30 19:50:17.629766');
INSERT INTO "tuner_study_trial" VALUES(1,2,1,0,'2026-11-30 19:50:17.633992');
INSERT INTO "tuner_study_trial" VALUES(1,3,2,0,'2026-11-30 19:50:17.636061');
INSERT INTO "tuner_study_trial" VALUES(1,4,3,0,'2026-11-30 19:50:17.637854');
INSERT INTO "tuner_study_trial" VALUES(2,5,0,0,'2026-11-30 19:50:17.650973');
INSERT INTO "tuner_study_trial" VALUES(3,1,0,1,'2026-11-30 19:50:17.658008');
CREATE TABLE tuner_trial (
	id INTEGER NOT NULL, 
	problem_key VARCHAR(16) NOT NULL, 
	device_key VARCHAR(16) NOT NULL, 
	stack_key VARCHAR(16) NOT NULL, 
	config_key VARCHAR(16) NOT NULL, 
	variant_id VARCHAR(64) NOT NULL, 
	template VARCHAR(100) NOT NULL, 
	label TEXT NOT NULL, 
	config JSON NOT NULL, 
	outcome VARCHAR(20) NOT NULL, 
	reason TEXT NOT NULL, 
	value_us DOUBLE, 
	binary_hash VARCHAR(64), 
	same_as VARCHAR(16) NOT NULL, 
	compile_report JSON, 
	check_report JSON, 
	seed BIGINT NOT NULL, 
	seconds JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	updated_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuner_trial PRIMARY KEY (id), 
	CONSTRAINT uq_tuner_trial_identity UNIQUE (problem_key, device_key, stack_key, config_key, variant_id), 
	CONSTRAINT fk_tuner_trial_problem_key FOREIGN KEY(problem_key) REFERENCES tuner_problem ("key"), 
	CONSTRAINT fk_tuner_trial_device_key FOREIGN KEY(device_key) REFERENCES tuner_device ("key"), 
	CONSTRAINT fk_tuner_trial_stack_key FOREIGN KEY(stack_key) REFERENCES tuner_stack ("key"), 
	CONSTRAINT fk_tuner_trial_variant_id FOREIGN KEY(variant_id) REFERENCES tuner_variant (id)
);
INSERT INTO "tuner_trial" VALUES(1,'4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','30b0b178683de33e','e2107ede08de957a','6d182f31b11063ff684fb3166aaec71238e1dd021ad5d251e7836de5d3a33f7e','online','template=online,BLOCK_COLS=1,num_warps=4','{"template":"online","switches":{"USE_EXP2":true},"launch":{"BLOCK_COLS":1,"num_warps":4},"chosen":["BLOCK_COLS","num_warps"]}','timed','',10.1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','','{"binary_hash":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","kernels":[{"name":"softmax_online","registers":64,"spill_bytes":0,"shared_bytes":4096,"threads":128}],"seconds":1.5,"instructions":{"ex2":12},"grid":[132,1,1]}','{"families":[{"family":"normal","problem":"softmax rows=3 cols=70","passed":true,"ratio":0.25,"error":0.0001,"bound":0.0004,"output":"out","where":[1,2],"reason":""}],"seed":7,"seconds":0.5,"mode":"gpu","promise":"","variation":0}',3,'{"compile":1.5,"check":0.5}','2026-11-30 19:50:17.625104','2026-11-30 19:50:17.625104');
INSERT INTO "tuner_trial" VALUES(2,'4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','30b0b178683de33e','decbc230cb68aecc','fb7b1896c9f71966207d0a1bf65d1b716520129d6fc536225a775f1d290781e8','online','template=online,BLOCK_COLS=2,num_warps=4','{"template":"online","switches":{"USE_EXP2":true},"launch":{"BLOCK_COLS":2,"num_warps":4},"chosen":["BLOCK_COLS","num_warps"]}','timed','',12.5,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','','{"binary_hash":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","kernels":[{"name":"softmax_online","registers":64,"spill_bytes":0,"shared_bytes":4096,"threads":128}],"seconds":1.5,"instructions":{"ex2":12},"grid":[132,1,1]}','{"families":[{"family":"normal","problem":"softmax rows=3 cols=70","passed":true,"ratio":0.25,"error":0.0001,"bound":0.0004,"output":"out","where":[1,2],"reason":""}],"seed":7,"seconds":0.5,"mode":"gpu","promise":"","variation":0}',3,'{"compile":1.5,"check":0.5}','2026-11-30 19:50:17.632528','2026-11-30 19:50:17.632528');
INSERT INTO "tuner_trial" VALUES(3,'4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','30b0b178683de33e','678c2973219bc3d6','6d182f31b11063ff684fb3166aaec71238e1dd021ad5d251e7836de5d3a33f7e','online','template=online,BLOCK_COLS=3,num_warps=4','{"template":"online","switches":{"USE_EXP2":true},"launch":{"BLOCK_COLS":3,"num_warps":4},"chosen":["BLOCK_COLS","num_warps"]}','wrong','é: off by one',NULL,NULL,'',NULL,NULL,0,'{}','2026-11-30 19:50:17.635246','2026-11-30 19:50:17.635246');
INSERT INTO "tuner_trial" VALUES(4,'4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','30b0b178683de33e','a31d0e66915dfd35','6d182f31b11063ff684fb3166aaec71238e1dd021ad5d251e7836de5d3a33f7e','online','template=online,BLOCK_COLS=4,num_warps=4','{"template":"online","switches":{"USE_EXP2":true},"launch":{"BLOCK_COLS":4,"num_warps":4},"chosen":["BLOCK_COLS","num_warps"]}','out_of_resources','too much shared memory',NULL,NULL,'',NULL,NULL,0,'{}','2026-11-30 19:50:17.637110','2026-11-30 19:50:17.637110');
INSERT INTO "tuner_trial" VALUES(5,'4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','b348773ace2cc6a2','e2107ede08de957a','6d182f31b11063ff684fb3166aaec71238e1dd021ad5d251e7836de5d3a33f7e','online','template=online,BLOCK_COLS=1,num_warps=4','{"template":"online","switches":{"USE_EXP2":true},"launch":{"BLOCK_COLS":1,"num_warps":4},"chosen":["BLOCK_COLS","num_warps"]}','timed','',7.0,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','','{"binary_hash":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","kernels":[{"name":"softmax_online","registers":64,"spill_bytes":0,"shared_bytes":4096,"threads":128}],"seconds":1.5,"instructions":{"ex2":12},"grid":[132,1,1]}','{"families":[{"family":"normal","problem":"softmax rows=3 cols=70","passed":true,"ratio":0.25,"error":0.0001,"bound":0.0004,"output":"out","where":[1,2],"reason":""}],"seed":7,"seconds":0.5,"mode":"gpu","promise":"","variation":0}',3,'{"compile":1.5,"check":0.5}','2026-11-30 19:50:17.649737','2026-11-30 19:50:17.649737');
CREATE TABLE tuner_variant (
	id VARCHAR(64) NOT NULL, 
	operator VARCHAR(100) NOT NULL, 
	template VARCHAR(100) NOT NULL, 
	template_hash VARCHAR(64) NOT NULL, 
	switches JSON NOT NULL, 
	exp2 VARCHAR(20) NOT NULL, 
	source TEXT NOT NULL, 
	created_at DATETIME NOT NULL, origin VARCHAR(255), 
	CONSTRAINT pk_tuner_variant PRIMARY KEY (id)
);
INSERT INTO "tuner_variant" VALUES('6d182f31b11063ff684fb3166aaec71238e1dd021ad5d251e7836de5d3a33f7e','softmax','online','tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt','{"USE_EXP2":true}','tl.exp2','def launch(x, out): ...
','2026-11-30 19:50:17.625104',NULL);
INSERT INTO "tuner_variant" VALUES('fb7b1896c9f71966207d0a1bf65d1b716520129d6fc536225a775f1d290781e8','softmax','online','tttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt','{"USE_EXP2":true}','tl.exp2','def launch(x, out): pass
','2026-11-30 19:50:17.632528',NULL);
CREATE TABLE tuner_winner (
	id INTEGER NOT NULL, 
	uid VARCHAR(32) NOT NULL, 
	study_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	problem_key VARCHAR(16) NOT NULL, 
	device_key VARCHAR(16) NOT NULL, 
	stack_key VARCHAR(16) NOT NULL, 
	kind VARCHAR(10) NOT NULL, 
	verdict TEXT NOT NULL, 
	estimated BOOLEAN NOT NULL, 
	median_us DOUBLE NOT NULL, 
	low_us DOUBLE NOT NULL, 
	high_us DOUBLE NOT NULL, 
	margin DOUBLE, 
	margin_low DOUBLE, 
	margin_high DOUBLE, 
	plain_key VARCHAR(16) NOT NULL, 
	plain_us DOUBLE, 
	speedup DOUBLE, 
	tie_set JSON NOT NULL, 
	finalists JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_tuner_winner PRIMARY KEY (id), 
	CONSTRAINT uq_tuner_winner_uid UNIQUE (uid), 
	CONSTRAINT fk_tuner_winner_study_id FOREIGN KEY(study_id) REFERENCES tuner_study (id), 
	CONSTRAINT fk_tuner_winner_trial_id FOREIGN KEY(trial_id) REFERENCES tuner_trial (id), 
	CONSTRAINT fk_tuner_winner_problem_key FOREIGN KEY(problem_key) REFERENCES tuner_problem ("key"), 
	CONSTRAINT fk_tuner_winner_device_key FOREIGN KEY(device_key) REFERENCES tuner_device ("key"), 
	CONSTRAINT fk_tuner_winner_stack_key FOREIGN KEY(stack_key) REFERENCES tuner_stack ("key")
);
INSERT INTO "tuner_winner" VALUES(1,'fc45887b02b54bc3a4091119dca3858f',1,1,'4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','30b0b178683de33e','winner','2 % faster',0,9.1,9.0,9.3,0.02,0.01,0.03,'p',12.0,1.3,'["k"]','[{"key":"k","median_us":9.1}]','2026-11-30 19:50:17.641944');
INSERT INTO "tuner_winner" VALUES(2,'83d68958bea4413dbe3a264b3aadaa43',2,5,'4c9ca44e0a3cae2a','c5a9eb5e9ce993b4','b348773ace2cc6a2','tie','by estimate',1,7.0,7.0,7.0,NULL,NULL,NULL,'',NULL,NULL,'[]','[]','2026-11-30 19:50:17.652999');
CREATE INDEX ix_tuner_device_name ON tuner_device (name);
CREATE INDEX ix_tuner_problem_operator ON tuner_problem (operator);
CREATE INDEX ix_tuner_variant_template_hash ON tuner_variant (template_hash);
CREATE INDEX ix_tuner_trial_variant_id ON tuner_trial (variant_id);
CREATE INDEX ix_tuner_study_trial_trial_id ON tuner_study_trial (trial_id);
CREATE INDEX ix_tuner_measurement_created_at ON tuner_measurement (created_at);
CREATE INDEX ix_tuner_winner_study_id ON tuner_winner (study_id);
CREATE INDEX ix_tuner_winner_trial_id ON tuner_winner (trial_id);
CREATE INDEX ix_tuner_winner_best ON tuner_winner (problem_key, device_key, estimated, created_at);
CREATE VIEW history AS
SELECT m.created_at, p.operator, p.label AS problem, p.shape, p.dtype, p.options, d.name AS device, s.label AS stack,
    CASE WHEN s.mode = 'estimated' THEN 'estimated' ELSE 'measured' END AS basis,
    t.template, t.label AS config, t.outcome, m.stage, m.protocol, m.median_us, m.low_us, m.high_us,
    m.sample_count, t.variant_id AS variant, t.id AS trial, m.id AS measurement
FROM tuner_measurement m
JOIN tuner_trial t ON t.id = m.trial_id
JOIN tuner_problem p ON p.key = t.problem_key
JOIN tuner_device d ON d.key = t.device_key
JOIN tuner_stack s ON s.key = t.stack_key;
CREATE VIEW failures AS
SELECT t.outcome, t.reason, p.operator, p.label AS problem, p.shape, p.dtype, p.options, d.name AS device,
    s.label AS stack, CASE WHEN s.mode = 'estimated' THEN 'estimated' ELSE 'measured' END AS basis,
    t.template, t.label AS config, t.variant_id AS variant, t.id AS trial, t.created_at
FROM tuner_trial t
JOIN tuner_problem p ON p.key = t.problem_key
JOIN tuner_device d ON d.key = t.device_key
JOIN tuner_stack s ON s.key = t.stack_key
WHERE t.outcome NOT IN ('timed', 'pruned');
CREATE INDEX ix_tuner_trial_place ON tuner_trial (device_key, stack_key, outcome);
CREATE INDEX ix_tuner_trial_created_at ON tuner_trial (created_at);
CREATE INDEX ix_tuner_measurement_stage ON tuner_measurement (stage, trial_id);
CREATE INDEX ix_tuner_run_study_id_lost_at ON tuner_run (study_id, lost_at);
CREATE INDEX ix_tuner_claim_run_id ON tuner_claim (run_id);
CREATE VIEW winners AS
SELECT p.operator, p.label AS problem, p.shape, p.dtype, p.options, d.name AS device, s.label AS stack,
    CASE WHEN w.estimated THEN 'estimated' ELSE 'measured' END AS basis,
    t.template, t.label AS config, w.median_us, w.low_us, w.high_us, w.kind, w.verdict, w.margin,
    w.plain_us, w.speedup, st.name AS study, t.variant_id AS variant, w.created_at
FROM tuner_winner w
JOIN tuner_trial t ON t.id = w.trial_id
JOIN tuner_study st ON st.id = w.study_id
JOIN tuner_problem p ON p.key = w.problem_key
JOIN tuner_device d ON d.key = w.device_key
JOIN tuner_stack s ON s.key = w.stack_key
WHERE t.outcome = 'timed' AND NOT EXISTS (
    SELECT 1 FROM tuner_winner n JOIN tuner_trial nt ON nt.id = n.trial_id
    WHERE nt.outcome = 'timed' AND n.problem_key = w.problem_key AND n.device_key = w.device_key
        AND n.estimated = w.estimated
        AND (n.created_at > w.created_at OR (n.created_at = w.created_at AND n.id > w.id))
);
COMMIT;
